"""Options of engines for tiers of prefixes below the KV cache.

vLLM: ``--kv-offloading-size`` (GiB of an engine, over its tensor ranks together) and
``--kv-offloading-backend`` of ``vllm/engine/arg_utils.py`` and ``vllm/config/cache.py``. SGLang:
``--hicache-*`` of ``python/sglang/srt/server_args.py``, whose size is GB of a rank, and
``docs/advanced_features/hicache_best_practices.md``.
"""

from __future__ import annotations

from typing import Final

from scalemodel._core import CacheTier
from scalemodel.serving.launch.instance import Instance

#: Backends of vLLM's own option, by set-up of the catalogue.
VLLM_BACKENDS: Final = {"vllm_offloading": "native", "lmcache": "lmcache"}
#: Storage behind the host memory of SGLang's HiCache.
SGLANG_STORAGE: Final = {"hicache": "", "hicache_3fs": "hf3fs", "hicache_mooncake": "mooncake"}


def _said_beside(instance: Instance, why: str, notes: list[str]) -> list[str]:
    notes.append(f"tiers {instance.tier_setup} below the KV caches are switched on beside: {why}")
    return []


def vllm_options(instance: Instance, notes: list[str]) -> list[str]:
    """Of vLLM; a note where its command line has no option for the set-up."""
    setup = instance.tier_setup
    if not setup:
        return []
    if setup not in VLLM_BACKENDS:
        return _said_beside(instance, "the command line of vLLM has no option for them", notes)
    if instance.role:
        return _said_beside(instance, "its pools pass caches on by a connector of their own", notes)
    size = _host(instance).capacity_bytes / instance.plan.layout.dp / 2**30
    words = ["--kv-offloading-size", f"{size:.6g}"]
    return [*words, "--kv-offloading-backend", VLLM_BACKENDS[setup]]


def sglang_options(instance: Instance, notes: list[str]) -> list[str]:
    """Of SGLang; a note where its command line has no option for the set-up."""
    setup = instance.tier_setup
    if not setup or instance.role == "decode":
        return []
    if setup not in SGLANG_STORAGE:
        return _said_beside(instance, "the command line of SGLang has no option for them", notes)
    if not instance.prefix_caching:
        return _said_beside(instance, "prompts are not looked up in the cache", notes)
    host = _host(instance)
    size = max(1, int(host.capacity_bytes / instance.ranks / 1e9))
    words = ["--enable-hierarchical-cache", "--hicache-size", str(size)]
    words += ["--hicache-write-policy", host.writes]
    storage = SGLANG_STORAGE[setup]
    return [*words, "--hicache-storage-backend", storage] if storage else words


def no_options(instance: Instance, notes: list[str]) -> None:
    """Of an engine whose command line knows no tiers."""
    if instance.tier_setup:
        _said_beside(instance, "no option of this engine is known for them", notes)


def _host(instance: Instance) -> CacheTier:
    """The nearest tier: memory of the host."""
    return instance.tiers[0]
