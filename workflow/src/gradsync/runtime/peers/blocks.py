"""The blocks of a model, which FSDP2 shards one by one."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def blocks(model: nn.Module) -> list[nn.Module]:
    """The modules that are sharded one by one: the elements of its lists and sequences, else its children.

    Single layers among them are left to the whole, so that they take no messages of their own, unless there is nothing
    else. Lists inside of a block are part of it.
    """
    candidates = [*_listed(model)] or [child for child in model.children() if _trains(child)]
    return [module for module in candidates if any(True for _ in module.children())] or candidates


def block_of(model: nn.Module) -> dict[str, str]:
    """The name of the block of each parameter, by the parameter's name; empty if it is in none.

    Nothing is told if a parameter is used in several places that are sharded apart: FSDP2 refuses that.
    """
    if shared(model):
        return {}
    names = {module: name for name, module in model.named_modules()}
    known = {id(parameter): names[block] for block in blocks(model) for parameter in block.parameters()}
    return {name: known.get(id(parameter), "") for name, parameter in model.named_parameters()}


def shared(model: nn.Module) -> str:
    """The name of a parameter that blocks share with one another, or with what is in none; empty if there is none."""
    inside = {module: number for number, block in enumerate(blocks(model)) for module in block.modules()}
    first: dict[int, int | None] = {}
    for place, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if first.setdefault(id(parameter), inside.get(module)) != inside.get(module):
                return f"{place}.{name}" if place else name
    return ""


def _listed(module: nn.Module) -> Iterator[nn.Module]:
    if isinstance(module, nn.Sequential):
        yield from _elements(module)
        return
    for child in module.children():
        if isinstance(child, CONTAINERS):
            yield from _elements(child)
        elif any(isinstance(inner, nn.ModuleList) for inner in child.modules()):
            yield from _listed(child)


def _elements(container: nn.Module) -> Iterator[nn.Module]:
    for element in container.children():
        if isinstance(element, CONTAINERS):
            yield from _elements(element)
        elif _trains(element):
            yield element


def _trains(module: nn.Module) -> bool:
    return any(True for _ in module.parameters())
