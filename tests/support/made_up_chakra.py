"""Made-up profiles in the form that MLCommons' converter of Chakra traces gives them."""

from __future__ import annotations

from typing import Any

from gradsync.interchange import chakra_file
from gradsync.interchange.chakra_schema import NODE_TYPES, VERSION, Attribute, Metadata, Node


def converted(profile: dict[str, Any]) -> bytes:
    """A profile in the form of MLCommons' converter: operators in order of start, each with its exclusive time.

    Then kernels, each after the operator that launched it.
    """
    events = [each for each in profile["traceEvents"] if each["cat"] in ("cpu_op", "user_annotation")]
    events = [each for each in events if not each["name"].startswith("gloo")]
    events.sort(key=lambda each: (each["ts"], -each["dur"]))
    nodes: list[Any] = []
    open_: list[tuple[float, Any]] = []
    for number, each in enumerate(events, 1):
        while open_ and open_[-1][0] <= each["ts"]:
            open_.pop()
        node = Node(id=number, name=each["name"], type=NODE_TYPES.index("COMP_NODE"))
        node.duration_micros = round(each["dur"])
        if open_:
            open_[-1][1].duration_micros -= node.duration_micros
            node.ctrl_deps.append(open_[-1][1].id)
        told = each["args"]
        if "Input Dims" in told:
            node.inputs.shapes, node.inputs.types = str(told["Input Dims"]), "['Tensor(float)']"
        annotated = each["cat"] == "user_annotation"
        node.attr.append(Attribute(name="is_cpu_op", bool_val=True))
        node.attr.append(Attribute(name="scope", int64_val=7 if annotated else 0))
        node.attr.append(Attribute(name="seq_id", int64_val=told.get("Sequence number", -1)))
        nodes.append(node)
        open_.append((each["ts"] + each["dur"], node))
    launched = {
        each["args"]["correlation"]: each["ts"] for each in profile["traceEvents"] if each["cat"] == "cuda_runtime"
    }
    for each in profile["traceEvents"]:
        if each["cat"] == "kernel" and "correlation" in each["args"]:
            moment = launched[each["args"]["correlation"]]
            parent = max((number for number, event in enumerate(events, 1) if event["ts"] <= moment), default=1)
            node = Node(id=len(nodes) + 1, name=each["name"], type=NODE_TYPES.index("COMP_NODE"), ctrl_deps=[parent])
            node.duration_micros = round(each["dur"])
            node.attr.append(Attribute(name="is_cpu_op", bool_val=False))
            node.attr.append(Attribute(name="stream", int64_val=each["args"]["stream"]))
            nodes.append(node)
    return chakra_file.to_bytes(Metadata(version=VERSION), nodes)
