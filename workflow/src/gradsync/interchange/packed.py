"""Traces that were packed with gzip, as profilers write them."""

from __future__ import annotations

import io
import zlib
from gzip import BadGzipFile, GzipFile

from gradsync.errors import InputError
from gradsync.files.reading import MOST_BYTES

GZIP = b"\x1f\x8b"
MOST_UNPACKED = 4 * MOST_BYTES


def unpacked(content: bytes, where: str) -> bytes:
    """The bytes, unpacked if they are packed; raises InputError if they are cut off or far too many."""
    if not content.startswith(GZIP):
        return content
    try:
        with GzipFile(fileobj=io.BytesIO(content)) as file:
            unpacked = file.read(MOST_UNPACKED + 1)
    except (EOFError, BadGzipFile, zlib.error) as error:
        raise InputError(f"{where}: packed with gzip, and cut off or damaged: {error}") from None
    if len(unpacked) > MOST_UNPACKED:
        raise InputError(f"{where}: unpacked it is larger than {MOST_UNPACKED >> 20} MiB: record fewer steps")
    return unpacked
