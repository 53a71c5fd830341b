"""A workload: what one iteration of a model computes and sends, tensor by tensor. JSON that people can write by hand.

`layers` are in backward order: the gradient that is ready first comes first. Each gradient tensor has one entry, named
as in `named_parameters()`. Seconds and bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from math import prod
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.files.problems import first_problem
from gradsync.plan import DTYPE_BYTES

VERSION = 1


class Layer(BaseModel):
    """One gradient tensor. `backward_seconds`: from the moment the previous gradient was ready to this one's.

    `forward_seconds`: from the moment forward first needs this parameter to the next one's; `forward_index`: its place
    in the order in which forward first needs them. `shape`: the lengths of the tensor's sides, none of a single number.
    `block`: the module that FSDP2 shards as one whose parameter it is, empty if it is in none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    bytes: int = Field(gt=0)
    backward_seconds: float = Field(ge=0, allow_inf_nan=False)
    forward_seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    forward_index: int | None = Field(default=None, ge=0)
    elements: int | None = Field(default=None, gt=0)
    shape: tuple[Annotated[int, Field(gt=0)], ...] | None = None
    dtype: str = "float32"
    block: str | None = None

    @model_validator(mode="after")
    def _size(self) -> Layer:
        if self.dtype not in DTYPE_BYTES:
            raise ValueError(f"layer {self.name!r}: unknown dtype {self.dtype!r} (known: {', '.join(DTYPE_BYTES)})")
        width = DTYPE_BYTES[self.dtype]
        if self.elements is not None and self.elements * width != self.bytes:
            raise ValueError(f"layer {self.name!r}: {self.elements} {self.dtype} elements are not {self.bytes} bytes")
        if self.shape is not None and prod(self.shape) * width != self.bytes:
            raise ValueError(
                f"layer {self.name!r}: {prod(self.shape)} {self.dtype} elements of shape {list(self.shape)} are not "
                f"{self.bytes} bytes"
            )
        return self

    @property
    def parameters(self) -> float:
        """Elements of the tensor (a fraction if hand-written bytes are no whole number of them)."""
        return self.bytes / DTYPE_BYTES[self.dtype]

    def resized(self, elements: int) -> Layer:
        """The same times for a tensor of so many elements, whose shape nobody knows."""
        return self.model_copy(
            update={"bytes": elements * DTYPE_BYTES[self.dtype], "elements": elements, "shape": None}
        )


class Workload(BaseModel):
    """One iteration of one rank: forward, then backward layer by layer, then update (seconds)."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    version: int = VERSION
    name: str
    forward_seconds: float = Field(ge=0, allow_inf_nan=False)
    update_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    norm_seconds: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="of all gradients, between the last message and the update where they are clipped to a global norm",
    )
    kernels: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        default_factory=dict,
        description="seconds for each byte that a kernel of that name moves (kernels/), where it is neither the update "
        "by SGD nor its norm: what a plan that uses another one takes is not known; NAME/selected: besides, for "
        "each byte that a kernel selects",
    )
    layers: tuple[Layer, ...] = Field(min_length=1)
    statistics: int = Field(
        default=0, ge=0, description="elements that forward changes and no gradient: batch-norm means and variances"
    )
    provenance: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> Workload:
        if self.version != VERSION:
            raise ValueError(f"workload version {self.version}; this gradsync reads version {VERSION}")
        name, times = Counter(layer.name for layer in self.layers).most_common(1)[0]
        if times > 1:
            raise ValueError(f"layer {name!r} appears {times} times")
        if len({layer.dtype for layer in self.layers}) > 1:
            raise ValueError("layers of different dtype: give all gradients one dtype")
        return self

    @property
    def backward_seconds(self) -> float:
        """t_b: all layers together."""
        return sum(layer.backward_seconds for layer in self.layers)

    @property
    def bytes(self) -> int:
        """Gradient bytes of the whole model."""
        return sum(layer.bytes for layer in self.layers)

    @property
    def unit(self) -> str:
        """The dtype in which plans count elements: the gradients' own, or bytes if sizes are no multiple of it."""
        dtype = self.layers[0].dtype
        return dtype if all(layer.bytes % DTYPE_BYTES[dtype] == 0 for layer in self.layers) else "uint8"

    def sizes(self) -> np.ndarray:
        """Bytes of each gradient.  # (layers,)"""
        return np.array([layer.bytes for layer in self.layers], dtype=float)

    def ready_seconds(self) -> np.ndarray:
        """When each gradient is ready, forward starting at 0: t_f + sum of t_b so far (Eq. 6).  # (layers,)"""
        return self.forward_seconds + np.cumsum([layer.backward_seconds for layer in self.layers])

    def forward_order(self) -> list[int]:
        """Indices into `layers` in the order of forward: by `forward_index` if all have one, else backwards."""
        places = [layer.forward_index for layer in self.layers]
        backwards = range(len(places) - 1, -1, -1)
        if None in places:
            return list(backwards)
        return sorted(backwards, key=lambda number: places[number] or 0)

    def forward_by_layer(self) -> np.ndarray:
        """Forward seconds of each layer.  # (layers,)

        If some layers have none, `forward_seconds` are spread over all as backward is; without backward times evenly.
        """
        known = [layer.forward_seconds for layer in self.layers]
        if None not in known:
            return np.array(known, float)
        backward = np.array([layer.backward_seconds for layer in self.layers])
        shares = backward if backward.any() else np.ones(len(backward))
        return self.forward_seconds * shares / shares.sum()

    def scaled(self, *, forward_seconds: float, backward_seconds: float, update_seconds: float, note: str) -> Workload:
        """The same layers with other totals; the share of each layer in the backward pass stays.

        The note goes into the provenance. Per-layer forward seconds are scaled with the forward total, the norm's with
        the update, which goes over the same gradients.
        """
        back = backward_seconds / self.backward_seconds if self.backward_seconds else 0.0
        ahead = forward_seconds / self.forward_seconds if self.forward_seconds else 0.0
        after = update_seconds / self.update_seconds if self.update_seconds else 0.0
        layers = tuple(
            layer.model_copy(
                update={
                    "backward_seconds": layer.backward_seconds * back,
                    "forward_seconds": None if layer.forward_seconds is None else layer.forward_seconds * ahead,
                }
            )
            for layer in self.layers
        )
        return self.model_copy(
            update={
                "forward_seconds": forward_seconds,
                "update_seconds": update_seconds,
                "norm_seconds": self.norm_seconds * after,
                "layers": layers,
                "provenance": {**self.provenance, "scaling": note},
            }
        )

    def on_the_wire(self, dtype: str) -> Workload:
        """The bytes that travel as this type, none for their own; raises InputError if its sizes are no elements."""
        if not dtype or dtype == self.unit:
            return self
        if self.unit == "uint8":
            raise InputError(f"workload {self.name!r}: sizes are no whole elements: can't travel as {dtype}")
        share = DTYPE_BYTES[dtype] / DTYPE_BYTES[self.unit]
        layers = [
            layer.model_copy(update={"bytes": round(layer.bytes * share), "dtype": dtype}) for layer in self.layers
        ]
        return self.model_copy(update={"layers": tuple(layers)})

    def to_json(self) -> str:
        """Indented JSON, fields that are not given left out."""
        return json.dumps(self.model_dump(mode="json", exclude_none=True), indent=1) + "\n"

    @staticmethod
    def from_json(text: str, where: str = "workload") -> Workload:
        """Parse and validate; raises InputError that names the place."""
        reading.parse_json(text, f"{where}: not a workload")
        try:
            return Workload.model_validate_json(text)
        except ValidationError as error:
            raise InputError(f"{where}: not a workload: {first_problem(error, Workload)}") from None

    @staticmethod
    def load(path: str | Path) -> Workload:
        """Read a file; raises InputError if it is missing or not a workload."""
        return Workload.from_json(reading.text(path, "workload"), str(path))
