"""Types and shapes of tensors as PyTorch's recorders write them: `float` and `c10::BFloat16`, `Float`, `[64, 3]`."""

from __future__ import annotations

from typing import Any

from gradsync.plan import DTYPE_BYTES

DTYPES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "bfloat16": "bfloat16",
    "int": "int32",
    "long": "int64",
    "byte": "uint8",
    **{name: name for name in DTYPE_BYTES},
}
MOST_ELEMENTS = 1 << 40


def dtype_of(text: Any) -> str | None:
    """The type as plans name it; None if it is no type of a gradient or a message."""
    if not isinstance(text, str):
        return None
    word = text.lower().removeprefix("tensor(").removesuffix(")").removeprefix("genericlist[").removesuffix("]")
    word = word.removeprefix("tensor(").removesuffix(")").rpartition("::")[2].removeprefix("torch.")
    return DTYPES.get(word)


def dtype_bytes(text: Any) -> int | None:
    """Bytes of an element."""
    dtype = dtype_of(text)
    return DTYPE_BYTES[dtype] if dtype else None


def elements_of(shape: Any) -> int | None:
    """Elements of a shape; None if it is none. A scalar has one."""
    if not isinstance(shape, list | tuple) or not all(type(side) is int and side >= 0 for side in shape):
        return None
    elements = 1
    for side in shape:
        elements = min(elements * side, MOST_ELEMENTS + 1) if side else 0  # sides may have thousands of digits
    return elements if 0 < elements <= MOST_ELEMENTS else None


def shape_bytes(shape: Any, dtype: Any) -> int | None:
    """Bytes of a tensor; None if its shape or its type is not known."""
    elements, width = elements_of(shape), dtype_bytes(dtype)
    return elements * width if elements and width else None
