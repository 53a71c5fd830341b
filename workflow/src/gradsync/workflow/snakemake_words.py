"""Refuses wrong words of the command `snakemake` before it reads them: it would answer with a traceback.

Snakemake takes every word after `--configfile` for one more configuration, a target too, and parses them with no limit
of size or depth before any rule of ours runs. `profiles/default/config.yaml`, which it reads first, calls `refuse`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from gradsync.configuration import settings
from gradsync.errors import InputError
from gradsync.files import reading

OPTION = "--configfiles"
SHORTEST = "--configf"  # the shortest prefix that Snakemake takes for OPTION
ELSEWHERE = ("-d", "--directory")  # with these, Snakemake looks for other files in another folder


def refuse(arguments: Sequence[str] | None = None) -> None:
    """End with one message and exit status 2 if a configuration can't be read, or a target follows it."""
    try:
        _refuse(sys.argv[1:] if arguments is None else arguments)
    except InputError as error:
        print(f"gradsync: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def _refuse(arguments: Sequence[str]) -> None:
    files = configurations(arguments)
    if len(files) > 1:
        first, *others = files
        taken = " ".join(map(reading.shown, others))
        raise InputError(
            f"--configfile takes every word after it for a configuration, {taken} too, and one whole configuration is "
            f"read: write targets before it, as in snakemake --cores {os.cpu_count()} TARGET --configfile {first}"
        )
    for file in files:
        if not os.path.exists(file):
            raise InputError(
                f"configuration {reading.shown(file)} does not exist: copy config/quick.yaml, or correct it"
            )
        if any(word in ELSEWHERE or word.startswith("--directory=") for word in arguments):
            reading.yaml_of(file, "configuration")
        else:
            settings.load(file)


def configurations(arguments: Sequence[str]) -> list[str]:
    """The words that Snakemake takes for configurations: those after the last `--configfile`, which replaces others."""
    files: list[str] = []
    taking = False
    for word in arguments:
        option, separator, value = word.partition("=")
        if word == "--":
            break
        if option.startswith(SHORTEST) and OPTION.startswith(option):
            files, taking = [value] if separator else [], not separator
        elif word.startswith("-"):
            taking = False
        elif taking:
            files.append(word)
    return files
