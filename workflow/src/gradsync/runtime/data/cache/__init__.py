"""DataCache: photographs from a slow folder, by way of the local disk, decoded in memory for all ranks of a node.

Source: Shi et al., "Towards Scalable Distributed Training of Deep Learning on Public Cloud Clusters", MLSys 2021,
Section 4.1 and Fig. 5. A file is read from the data's folder once for as long as the local disk keeps its copy, and
decoded once per node for as long as the memory keeps its pixels. What augments an image comes after that, so that
every epoch still has other crops and mirrors.

Differs from the paper: pixels are kept as bytes and normalised when they are used, which takes a fourth of the memory;
a node keeps whatever its ranks were given, which is not the same part of the data in each epoch (CT-E19: the paper does
not say whether a node reads only its own part, which would limit shuffling).
"""

from __future__ import annotations

import hashlib
import struct
import threading
from collections import Counter
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from gradsync.errors import InputError
from gradsync.runtime.data.cache.claims import claimed
from gradsync.runtime.data.cache.store import Store

KINDS = ("hits", "heals", "evictions", "refusals")
SIDES = struct.Struct("<II")  # height and width of the pixels that follow
Reduce = Callable[[Image.Image], Image.Image]


class DataCache:
    """Decoded pixels of image files: from `memory`, else from a copy of the file in `disk`, else from the file.

    Either store may be missing. Of a file that has changed on disk (by its size or time), no old copy is used; memory
    has it as it was when it was first read in this launch.
    """

    def __init__(self, memory: Store | None, disk: Store | None, reduced: bool):
        self.memory, self.disk, self.reduced = memory, disk, reduced
        self.made: Counter[str] = Counter()  # files that this process has "decoded", and "read" from the data's folder
        self._counting = threading.Lock()

    def pixels(self, path: str, reduce: Reduce) -> np.ndarray:
        """The pixels of a file, after `reduce` if the cache keeps reduced images.  # (height, width, 3) uint8

        Raises InputError that names the file if it can't be read or is no image that can be decoded.
        """
        if self.memory is None:
            return self._decoded(path, reduce)
        key = _digest(path)
        content = self.memory.get(key)
        if content is None:
            with claimed(self.memory.folder, key):
                content = self.memory.get(key)  # another rank may have decoded it meanwhile
                if content is None:
                    pixels = self._decoded(path, reduce)
                    self.memory.put(key, SIDES.pack(*pixels.shape[:2]), pixels.tobytes())
                    return pixels
        height, width = SIDES.unpack_from(content)
        return np.frombuffer(content, np.uint8, offset=SIDES.size).reshape(height, width, 3)

    def counts(self) -> dict[str, float]:
        """What this process has counted, by level and kind: `memory_hits`, `memory_misses`, `disk_heals`, ..."""
        counted: dict[str, float] = {}
        for level, store, misses in (("memory", self.memory, "decoded"), ("disk", self.disk, "read")):
            if store is not None:
                counted |= {f"{level}_{kind}": float(store.counts[kind]) for kind in KINDS}
                counted[f"{level}_misses"] = float(self.made[misses])
        return counted

    def _decoded(self, path: str, reduce: Reduce) -> np.ndarray:
        photograph = decode(path, self._content(path))
        with self._counting:
            self.made["decoded"] += 1
        return np.asarray(reduce(photograph) if self.reduced else photograph)

    def _content(self, path: str) -> bytes | memoryview:
        """The bytes of a file, from its copy if there is one."""
        try:
            key = ""
            if self.disk is not None:
                status = Path(path).stat()
                key = _digest(path, status.st_size, status.st_mtime_ns)
                if (copy := self.disk.get(key)) is not None:
                    return copy
            content = Path(path).read_bytes()
        except OSError as error:
            raise InputError(f"{path}: can't be read ({error.strerror}): replace it") from None
        with self._counting:
            self.made["read"] += 1
        if self.disk is not None:
            self.disk.put(key, content)
        return content


def decode(path: str, content: bytes | memoryview | None = None) -> Image.Image:
    """The image of a file in RGB, from its content if that is known; raises InputError that names the file."""
    try:
        with Image.open(path if content is None else BytesIO(content)) as file:
            return file.convert("RGB")
    except Exception as error:  # decoders raise whatever the broken bytes lead to
        raise InputError(f"{path}: no image that can be decoded ({error}): replace it") from error


def _digest(*of: object) -> str:
    return hashlib.sha256(repr(of).encode()).hexdigest()[:40]
