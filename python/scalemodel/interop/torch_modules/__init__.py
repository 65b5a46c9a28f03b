"""Import of PyTorch modules as models of layer groups; needs the extra ``torch``."""

from __future__ import annotations

from scalemodel.interop.torch_modules.groups import RecordedLayers, from_torch

__all__ = ["RecordedLayers", "from_torch"]
