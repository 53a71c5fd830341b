"""The messages of a Chakra trace: the fields of MLCommons' et_def.proto (schema 0.0.4) that gradsync reads or writes.

No package of the index holds that schema, so its descriptors are made here, in a pool of their own: a program that
has MLCommons' own module besides doesn't clash with it. Fields that are not named here stay in a message unread.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

VERSION = "0.0.4"
PACKAGE = "ChakraProtoMsg"
NODE_TYPES = (
    *("INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE"),
    *("COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE"),
)
COLLECTIVES = (
    *("ALL_REDUCE", "REDUCE", "ALL_GATHER", "GATHER", "SCATTER", "BROADCAST", "ALL_TO_ALL", "REDUCE_SCATTER"),
    *("REDUCE_SCATTER_BLOCK", "BARRIER"),
)
# types of a value, in the order of their numbers: 3 is a double, 4 a list of them, and so on
VALUES = (
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
    *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
)
_FIELD = descriptor_pb2.FieldDescriptorProto


def _add(message: Any, name: str, number: int, kind: str, *, several: bool = False, of: str = "") -> None:
    """Add a field; `of` names the message or the enumeration that it holds."""
    field = message.field.add(name=name, number=number, type=getattr(_FIELD, f"TYPE_{kind.upper()}"))
    field.label = _FIELD.LABEL_REPEATED if several else _FIELD.LABEL_OPTIONAL
    if of:
        field.type_name = f".{PACKAGE}.{of}"


def _file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="gradsync/et_def.proto", package=PACKAGE, syntax="proto3")
    for enumeration, names in (("NodeType", NODE_TYPES), ("CollectiveCommType", COLLECTIVES)):
        added = file.enum_type.add(name=enumeration)
        for number, name in enumerate(names):
            added.value.add(name=name, number=number)
    attribute = file.message_type.add(name="AttributeProto")
    _add(attribute, "name", 1, "string")
    _add(attribute, "doc_string", 2, "string")
    attribute.oneof_decl.add(name="value")
    for number, kind in enumerate(VALUES):
        listed = f"{kind.capitalize()}List"
        _add(file.message_type.add(name=listed), "values", 1, kind, several=True)
        _add(attribute, f"{kind}_val", 3 + 2 * number, kind)
        _add(attribute, f"{kind}_list", 4 + 2 * number, "message", of=listed)
    for field in attribute.field[2:]:
        field.oneof_index = 0
    metadata = file.message_type.add(name="GlobalMetadata")
    _add(metadata, "version", 1, "string")
    _add(metadata, "attr", 2, "message", several=True, of="AttributeProto")
    tensors = file.message_type.add(name="IOInfo")
    for number, name in enumerate(("values", "shapes", "types"), 1):
        _add(tensors, name, number, "string")
    node = file.message_type.add(name="Node")
    _add(node, "id", 1, "uint64")
    _add(node, "name", 2, "string")
    _add(node, "type", 3, "enum", of="NodeType")
    _add(node, "ctrl_deps", 4, "uint64", several=True)
    _add(node, "data_deps", 5, "uint64", several=True)
    _add(node, "start_time_micros", 6, "uint64")
    _add(node, "duration_micros", 7, "uint64")
    _add(node, "inputs", 8, "message", of="IOInfo")
    _add(node, "outputs", 9, "message", of="IOInfo")
    _add(node, "attr", 10, "message", several=True, of="AttributeProto")
    return file


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file())
    names = ("AttributeProto", "GlobalMetadata", "Node")
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in names}


Attribute, Metadata, Node = _classes().values()


def attributes(message: Any) -> dict[str, Any]:
    """Name -> value of the attributes of a node or of the metadata; a list as a list."""
    values = {}
    for each in message.attr:
        field = each.WhichOneof("value")
        if field is not None:
            value = getattr(each, field)
            values[each.name] = list(value.values) if field.endswith("_list") else value
    return values
