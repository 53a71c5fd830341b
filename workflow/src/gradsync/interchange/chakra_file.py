"""The file of a Chakra trace: its metadata, then its nodes, each with its length before it as a varint."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf import proto
from google.protobuf.message import DecodeError

from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.interchange.chakra_schema import Metadata, Node
from gradsync.interchange.packed import unpacked

ENDING = ".et"


class Trace(NamedTuple):
    """What a file holds, in order."""

    where: str
    metadata: Any
    nodes: list[Any]


def read(path: Path) -> Trace:
    """Raises InputError if the file is no Chakra trace, or ends in the middle of a node."""
    content = io.BytesIO(unpacked(reading.raw(path, "trace"), f"trace {path}"))
    size = len(content.getbuffer())
    messages: list[Any] = []
    try:
        while content.tell() < size:
            messages.append(proto.parse_length_prefixed(Node if messages else Metadata, content))
    except (DecodeError, ValueError, UnicodeDecodeError) as error:
        place = f"message {len(messages)}, before byte {content.tell()} of {size}"
        reason = " ".join(str(error).split())[:80]
        raise InputError(f"trace {path}: not a Chakra trace, or cut off: {place}, can't be read ({reason})") from None
    if len(messages) < 2 or not messages[0].version:
        raise InputError(f"trace {path}: not a Chakra trace: it needs metadata with a version, and nodes")
    return Trace(str(path), messages[0], messages[1:])


def to_bytes(metadata: Any, nodes: Iterable[Any]) -> bytes:
    """The content of the file."""
    written = io.BytesIO()
    for message in (metadata, *nodes):
        proto.serialize_length_prefixed(message, written)
    return written.getvalue()
