"""Low-rank adapters (LoRA) as settings of engines ask for them.

Defaults: vLLM's ``vllm/config/lora.py``, SGLang's ``server_args.py``, TensorRT-LLM's
``lora_helper.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from scalemodel.base.errors import ScaleModelError
from scalemodel.interop.serving_settings.drafts import Reader

_MOST: Final = 1_000_000
_UNTOLD: Final = 4  # slots of TensorRT-LLM where nothing tells them: our assumption
#: Projections of attention, without the end that tells a projection (``_proj``).
_ATTENTION: Final = ("q", "k", "v", "o", "qkv")


def _named(text: str) -> int:
    """Adapters that an option lists, as ``NAME=PATH`` or as JSON tables."""
    return text.count("{") or len(text.split())


def _fields(
    reading: Reader, *, listed: int, held: int | None, slots: int, rank: int, targets: str
) -> dict[str, Any]:
    """Fields of the record; `held` is what the memory of the host has room for."""
    adapters = listed or max(held or 0, slots)
    if not listed:
        reading.notes.append(
            f"the adapters are not listed: predicted with {adapters}, as many as there is room "
            "for; give adapters"
        )
    return {
        "adapters": adapters,
        "adapter_rank": rank,
        "adapter_targets": targets,
        "adapter_slots": 0 if slots == adapters else slots,
    }


def vllm_adapters(reading: Reader) -> dict[str, Any]:
    """Fields of the record that ``--enable-lora`` and its limits stand for."""
    options = reading.options
    listed, held = _named(options.text("lora_modules")), options.count("max_cpu_loras")
    slots = options.count("max_loras") or 1
    rank = options.count("max_lora_rank") or 16
    if not options.switch("enable_lora"):
        return {}
    return _fields(reading, listed=listed, held=held, slots=slots, rank=rank, targets="all")


def sglang_adapters(reading: Reader) -> dict[str, Any]:
    """Fields of the record that ``--enable-lora`` or ``--lora-paths`` stand for."""
    options = reading.options
    listed, held = _named(options.text("lora_paths")), options.count("max_loaded_loras")
    slots = options.count("max_loras_per_batch") or 8
    rank = options.count("max_lora_rank")
    names = options.text("lora_target_modules").split()
    if not options.switch("enable_lora", default=listed > 0):
        return {}
    if rank is None:
        rank = 16
        reading.notes.append(f"max_lora_rank: the adapters tell it; predicted with {rank}")
    attention = bool(names) and all(name.removesuffix("_proj") in _ATTENTION for name in names)
    targets = "attention" if attention else "all"
    return _fields(reading, listed=listed, held=held, slots=slots, rank=rank, targets=targets)


def tensorrt_adapters(reading: Reader, table: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the record that ``lora_config`` stands for."""
    if not table:
        return {}

    def names(name: str) -> list[str]:
        given = table.get(name) or []
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise ScaleModelError(
                f"tensorrt_llm: lora_config: {name}={given!r}: must be a list",
                code="malformed_setting",
            )
        return [str(each) for each in given]

    def whole(name: str, default: int) -> int:
        return int(reading.number(name, table.get(name), _MOST) or default)

    targets = names("lora_target_modules")
    attention = bool(targets) and all(each.startswith("attn_") for each in targets)
    listed = len(names("lora_dir"))
    slots = whole("max_loras", listed or _UNTOLD)
    if not table.get("max_loras"):
        reading.notes.append(f"max_loras: a share of the memory; predicted with {slots}")
    return _fields(
        reading,
        listed=listed,
        held=whole("max_cpu_loras", slots),
        slots=slots,
        rank=whole("max_lora_rank", 64),
        targets="attention" if attention else "all",
    )
