"""Import torchvision together with a torch build that its C++ operators were not compiled for.

torchvision's wheel is built against the CUDA build of torch; with a CPU build its import stops at missing operators.
Models, datasets and transforms need none of them, so declaring the two that the import looks for is enough.
"""

from __future__ import annotations

import importlib
from types import ModuleType

import torch

_libraries: list[torch.library.Library] = []  # a library's declarations last as long as the object


def torchvision() -> ModuleType:
    """The torchvision module."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _libraries.append(library)
    return importlib.import_module("torchvision")
