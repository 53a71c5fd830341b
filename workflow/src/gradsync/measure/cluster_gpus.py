"""GPUs of a node and the links between them, from the driver: from its library NVML, else from `nvidia-smi topo -m`.

Words for links are those of `nvidia-smi topo -m` (see `clusters.nodes.GpuLinks`). A node without a GPU has none, which
is no error.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from gradsync.clusters.nodes import Gpu, GpuLinks

SECONDS = 30.0  # for a tool of the driver; it takes some of them if the driver is not kept loaded
# nvmlGpuTopologyLevel_t: the nearest thing that two devices have in common
ANCESTORS = {0: "INT", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}


class LinkWords(NamedTuple):
    """What the driver says to one rank: the word for the link of two devices by their PCI addresses (lower first)."""

    source: str
    words: dict[tuple[str, str], str]


def visible() -> tuple[Gpu, ...]:
    """The devices that torch shows this rank."""
    if not torch.cuda.is_available():
        return ()
    return tuple(_gpu(torch.cuda.get_device_properties(number)) for number in range(torch.cuda.device_count()))


def _gpu(device: Any) -> Gpu:
    """`device`: the properties that torch has of it."""
    return Gpu(
        name=device.name,
        pci=f"{device.pci_domain_id:08x}:{device.pci_bus_id:02x}:{device.pci_device_id:02x}.0",
        memory_gib=round(device.total_memory / 2**30, 1),
        compute_capability=f"{device.major}.{device.minor}",
        multiprocessors=device.multi_processor_count,
    )


def software() -> dict[str, str]:
    """Versions of CUDA, NCCL and the driver; empty without a GPU."""
    if not torch.cuda.is_available():
        return {}
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    driver = _smi("--query-gpu=driver_version", "--format=csv,noheader").splitlines()
    return {"cuda": str(torch.version.cuda), "nccl": nccl, "driver": driver[0].strip() if driver else "unknown"}


def links() -> LinkWords | None:
    """Links between all devices that the driver shows; None if there is no driver."""
    return _of_nvml() or _of_smi()


def matrix(gpus: Sequence[Gpu], of_ranks: Sequence[LinkWords | None]) -> GpuLinks | None:
    """Links between `gpus` by the words that the ranks of their node have; None if they have none. "?": unknown."""
    known = [each for each in of_ranks if each is not None]
    if not gpus or not known:
        return None
    words = {pair: word for each in reversed(known) for pair, word in each.words.items()}
    rows = tuple(
        tuple("X" if a is b else words.get((min(a.pci, b.pci), max(a.pci, b.pci)), "?") for b in gpus) for a in gpus
    )
    return GpuLinks(source=known[0].source, matrix=rows)


def _of_nvml() -> LinkWords | None:
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        return LinkWords("NVML", _nvml_words(pynvml))
    except pynvml.NVMLError:
        return None  # an old driver: its own tool knows what it can show
    finally:
        pynvml.nvmlShutdown()


def _nvml_words(nvml: Any) -> dict[tuple[str, str], str]:
    handles = {}
    for number in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(number)
        handles[_address(nvml.nvmlDeviceGetPciInfo(handle).busId)] = handle
    ends = {pci: _nvlinks(nvml, handle) for pci, handle in handles.items()}
    words = {}
    for a in sorted(handles):
        for b in sorted(handles):
            if a < b:
                # through a switch, every link of a device leads to every other device
                count = ends[a].count(b) or min(ends[a].count("switch"), ends[b].count("switch"))
                level = nvml.nvmlDeviceGetTopologyCommonAncestor(handles[a], handles[b])
                words[a, b] = f"NV{count}" if count else ANCESTORS.get(int(level), "?")
    return words


def _nvlinks(nvml: Any, handle: Any) -> list[str]:
    """Where each active NVLink of a device leads: the PCI address of another one, or "switch"."""
    ends = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            if nvml.nvmlDeviceGetNvLinkState(handle, link) != nvml.NVML_FEATURE_ENABLED:
                continue
            switch = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link) == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
            other = "switch" if switch else _address(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId)
        except nvml.NVMLError:
            continue  # fewer links than the most that there may be
        ends.append(other)
    return ends


def _of_smi() -> LinkWords | None:
    listing = _smi("--query-gpu=index,pci.bus_id", "--format=csv,noheader")
    addresses = {}
    for row in listing.splitlines():
        index, _, pci = row.partition(",")
        if index.strip().isdigit():
            addresses[int(index)] = _address(pci.strip())
    return LinkWords("nvidia-smi topo -m", topology(_smi("topo", "-m"), addresses)) if addresses else None


def topology(text: str, addresses: dict[int, str]) -> dict[tuple[str, str], str]:
    """Words of links from the table of `nvidia-smi topo -m`; `addresses`: PCI, by the tool's own numbers."""
    lines = [line for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines() if re.search(r"\bGPU\d", line)]
    if not lines:
        return {}
    columns = [int(number) for number in re.findall(r"\bGPU(\d+)\b", lines[0])]
    words = {}
    for line in lines[1:]:
        cells = line.split()
        if not (match := re.fullmatch(r"GPU(\d+)", cells[0])):
            continue
        row = int(match[1])
        for column, word in zip(columns, cells[1:], strict=False):
            if row != column and {row, column} <= set(addresses):
                a, b = sorted((addresses[row], addresses[column]))
                words[a, b] = word
    return words


def _address(pci: Any) -> str:
    """A PCI address as torch has it: domain with eight digits, lower case."""
    text = (pci.decode() if isinstance(pci, bytes) else str(pci)).lower()
    domain, _, rest = text.partition(":")
    return f"{int(domain, 16):08x}:{rest}"


def _smi(*arguments: str) -> str:
    """What the driver's tool prints; "" if it is missing, fails or hangs."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    try:
        ended = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout if ended.returncode == 0 else ""
