"""The description of a testbed, as JSON: topology, rates, and the factor by which it is slower than what it models.

Time dilation: a testbed of links D times slower, on which computation is replayed D times slower, keeps the ratios of
computation and transfer. Start-up is this machine's own: D is chosen so that start-up / D is the network's.
"""

from __future__ import annotations

import json

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gradsync import topologies
from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.files.problems import first_problem
from gradsync.testbed.namespaces import refuse_lanes, refuse_rate
from gradsync.testbed.wiring import Cable, cables

VERSION = 1


class Description(BaseModel):
    """Rates are those of the testbed, in its own seconds; a second of what it models lasts `dilation` of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    version: int = VERSION
    topology: str
    bits_per_second: float = Field(gt=0, description="of a link, each way")
    flow_bits_per_second: float | None = Field(
        default=None, gt=0, description="most that two hosts send each other on a lane"
    )
    lanes: int = Field(default=1, ge=1, description="that have connections of their own")
    latency_seconds: float = Field(default=0.0, ge=0, description="of a link, one way; not every kernel can")
    dilation: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    source: str = ""

    def cables(self, ranks: int) -> list[Cable]:
        """The cables for `ranks` ranks; raises InputError if it can't hold so many, or its rates make no sense."""
        if self.version != VERSION:
            raise InputError(f"testbed of version {self.version}; this gradsync reads version {VERSION}")
        refuse_rate(self.bits_per_second, self.flow_bits_per_second)
        refuse_lanes(self.lanes)
        return cables(topologies.parse(self.topology, ranks), ranks)

    def describe(self) -> str:
        """Topology and rates, in words."""
        lanes = "" if self.lanes == 1 else f", {self.lanes} lanes"
        flow = "" if self.flow_bits_per_second is None else f", {self.flow_bits_per_second:g} a connection{lanes}"
        slower = "" if self.dilation == 1 else f", time {self.dilation:g} times slower"
        return f"{self.topology}, {self.bits_per_second:g} bit/s a link{flow}{slower}"

    def to_json(self) -> str:
        """One line of JSON, without the fields that are None."""
        return json.dumps(self.model_dump(exclude_none=True)) + "\n"


def read(text: str, bits_per_second: float, flow_bits_per_second: float | None = None, lanes: int = 1) -> Description:
    """The testbed in a file (its name ends with .json), or of a topology with these rates and lanes.

    Raises InputError if the file is missing or describes none.
    """
    if not text.endswith(".json"):
        refuse_rate(bits_per_second, flow_bits_per_second)
        refuse_lanes(lanes)
        return Description(
            topology=text, bits_per_second=bits_per_second, flow_bits_per_second=flow_bits_per_second, lanes=lanes
        )
    try:
        return Description.model_validate(reading.json_of(text, "testbed"))
    except ValidationError as error:
        raise InputError(f"testbed {text}: not a testbed: {first_problem(error, Description)}") from None
