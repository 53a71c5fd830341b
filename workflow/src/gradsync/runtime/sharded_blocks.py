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

    Nothing is told if FSDP2 refuses the model, or if a parameter is frozen: FSDP2 gathers that one, too, and a workload
    does not have it.
    """
    if refused(model) or not all(parameter.requires_grad for parameter in model.parameters()):
        return {}
    names = {module: name for name, module in model.named_modules()}
    known = {id(parameter): names[block] for block in blocks(model) for parameter in block.parameters()}
    return {name: known.get(id(parameter), "") for name, parameter in model.named_parameters()}


def refused(model: nn.Module) -> str:
    """Why FSDP2 can't shard the model block by block, with the name of the parameter; empty if it can."""
    modules = {module: name for name, module in model.named_modules()}
    places = [f"{modules[block]}." for block in blocks(model)]
    first: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if not parameter.ndim:
            return f"{name!r} is a single number, which it does not shard"
        block = next((place for place in places if name.startswith(place)), "")
        if first.setdefault(id(parameter), block) != block:
            return f"{name!r} is shared between blocks, which it shards apart"
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
