"""What is refused in a loop that is not ours: one message, and exit status 2 if nobody catches it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import torch.distributed as dist

from gradsync.errors import InputError


class RefusedError(InputError, SystemExit):
    """An InputError that ends a program that does not catch it with status 2 and no traceback; it is shown already."""

    def __init__(self, message: str):
        super().__init__(message)
        self.code = 2


def refuse(message: str, *, show: bool = True) -> NoReturn:
    """Show the message and raise it."""
    if show:
        print(f"gradsync: error: {message}", file=sys.stderr, flush=True)
    raise RefusedError(message)


@contextmanager
def together() -> Iterator[None]:
    """What a rank refuses inside is refused by all, in the words of the first that does; collective."""
    problem = ""
    try:
        yield
    except InputError as error:
        problem = str(error)
    problems = [""] * dist.get_world_size()
    dist.all_gather_object(problems, problem)
    for rank, each in enumerate(problems):
        if each:
            refuse(each if all(problems) else f"rank {rank}: {each}", show=dist.get_rank() == 0)
