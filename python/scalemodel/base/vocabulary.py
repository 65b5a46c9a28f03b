"""Words that people use: other spellings of choices, other names of arguments and columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

#: What else a choice is called, without case and separators; the first that is legal is meant.
SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {
    # number formats
    "bfloat16": ("bf16",),
    "half": ("fp16",),
    "float16": ("fp16",),
    "f16": ("fp16",),
    "float32": ("fp32",),
    "float": ("fp32",),
    "f32": ("fp32",),
    "single": ("fp32",),
    "tensorfloat32": ("tf32",),
    "float8": ("fp8",),
    "f8": ("fp8",),
    "fp8e4m3": ("fp8",),
    "fp8hybrid": ("fp8",),
    "float8e4m3fn": ("fp8",),
    "mxfp8": ("fp8",),
    "float4": ("fp4",),
    "nvfp4": ("fp4",),
    "mxfp4": ("mxfp4", "fp4"),
    "w8a16": ("int8",),
    "w4a16": ("int4",),
    # what data-parallel ranks shard; DeepSpeed counts stages, PyTorch names strategies
    "fsdp": ("zero3",),
    "fsdp2": ("zero3",),
    "fullyshardeddataparallel": ("zero3",),
    "fullshard": ("zero3",),
    "shardgradop": ("zero2",),
    "noshard": ("ddp",),
    "zero3": ("fsdp",),
    "zero0": ("ddp",),
    "dataparallel": ("ddp",),
    "distributeddataparallel": ("ddp",),
    "distributedoptimizer": ("zero1",),
    "zerostage1": ("zero1",),
    "zerostage2": ("zero2",),
    "zerostage3": ("zero3",),
    "hybridshard": ("hsdp",),
    # recomputation
    "off": ("none",),
    "no": ("none",),
    "activationcheckpointing": ("full",),
    "gradientcheckpointing": ("full",),
    # context parallelism
    "ulysses": ("all_to_all",),
    "deepspeedulysses": ("all_to_all",),
    "ringattention": ("ring",),
    # schedules
    "onefoneb": ("1f1b",),
    "interleaved1f1b": ("interleaved",),
    "zb": ("zero_bubble",),
    "zbh1": ("zero_bubble",),
    "zb1p": ("zero_bubble",),
    "zbh2": ("zero_bubble_2p",),
    "zb2p": ("zero_bubble_2p",),
    "zbv": ("zero_bubble_v",),
    "zbvzerobubble": ("zero_bubble_v",),
    # optimizers
    "adamw": ("adam",),
    "fusedadam": ("adam",),
    "momentum": ("sgd_momentum",),
    # attention kernels
    "flashattention": ("flash2",),
    "flashattention1": ("flash1",),
    "flashattention2": ("flash2",),
    "flashattention3": ("flash3",),
    "fa2": ("flash2",),
    "fa3": ("flash3",),
    "eager": ("unfused",),
    # fine-tuning
    "alllinear": ("all",),
    "sft": ("full",),
}

#: What else an argument or an option is called, without case and separators.
SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "gpus": ("accelerators", "gpus"),
    "numgpus": ("accelerators", "gpus"),
    "ngpus": ("accelerators", "gpus"),
    "worldsize": ("accelerators", "gpus"),
    "devices": ("accelerators", "gpus"),
    "accelerators": ("gpus",),
    "maxnodes": ("most_nodes",),
    "numnodes": ("nodes",),
    "nnodes": ("nodes",),
    "hosts": ("nodes",),
    "nodes": ("gpus", "accelerators"),
    "seqlen": ("sequence", "input_tokens"),
    "seqlength": ("sequence", "input_tokens"),
    "sequencelength": ("sequence", "input_tokens"),
    "maxseqlen": ("sequence", "input_tokens"),
    "contextlength": ("sequence", "input_tokens"),
    "context": ("sequence", "input_tokens"),
    "globalbatchsize": ("global_batch",),
    "gbs": ("global_batch",),
    "batch": ("global_batch",),
    "batchsize": ("global_batch", "max_running_sequences"),
    "trainbatchsize": ("global_batch",),
    "microbatchsize": ("micro_batch",),
    "mbs": ("micro_batch",),
    "dtype": ("precision",),
    "format": ("precision",),
    "kvcachedtype": ("kv_precision",),
    "tensorparallel": ("tp",),
    "tensorparallelsize": ("tp",),
    "tensormodelparallelsize": ("tp",),
    "pipelineparallel": ("pp",),
    "pipelinemodelparallelsize": ("pp",),
    "contextparallelsize": ("cp",),
    "expertmodelparallelsize": ("ep",),
    "dataparallel": ("dp",),
    "zerostage": ("sharding",),
    "hpz": ("secondary_degree",),
    "zerohpzpartitionsize": ("secondary_degree",),
    "qwz": ("quantized_gather",),
    "zeroquantizedweights": ("quantized_gather",),
    "qgz": ("quantized_reduce",),
    "zeroquantizedgradients": ("quantized_reduce",),
    "activationcheckpointing": ("recompute",),
    "recomputegranularity": ("recompute",),
    "ttft": ("ttft_s",),
    "tpot": ("tpot_s",),
    "itl": ("tpot_s",),
    "qps": ("requests_per_s",),
    "rps": ("requests_per_s",),
    "requestrate": ("requests_per_s",),
    "inputlen": ("input_tokens",),
    "isl": ("input_tokens",),
    "outputlen": ("output_tokens",),
    "osl": ("output_tokens",),
    "hardware": ("cluster",),
    "gpu": ("cluster", "accelerators"),
    "system": ("cluster",),
    "framework": ("stack", "engine"),
    "software": ("stack", "engine"),
    "budget": ("budget_usd",),
    "cost": ("budget_usd", "price", "cost_usd"),
    "power": ("cap_w", "power_w"),
    # columns and degrees
    "memory": ("memory_bytes",),
    "time": ("step_time_s",),
    "throughput": ("tokens_per_s",),
    "energy": ("energy_j",),
    "tensor": ("tp",),
    "pipeline": ("pp",),
    "expert": ("ep",),
    "data": ("dp",),
    "mttf": ("reliability",),
    "failures": ("reliability", "failures"),
    "region": ("grid",),
    # commands, by verbs of Python too
    "predict": ("estimate",),
    "train": ("estimate",),
    "optimize": ("search",),
    "optimise": ("search",),
    "benchmark": ("measure",),
    "planserving": ("serve",),
    "servesplit": ("serve",),
    "compareserving": ("serve",),
    "planfleet": ("fleet",),
    "simulatefleet": ("fleet",),
    "simulatenetwork": ("route",),
    "estimaterl": ("rl",),
    "searchrl": ("rl",),
    "estimatetuning": ("tune",),
    "readtrace": ("trace",),
    "listcatalog": ("list",),
}

_SEPARATORS: Final = re.compile(r"[\s_\-./]+")


def folded(word: object) -> str:
    """A word without case and separators, as words are compared.

    Examples
    --------
    >>> folded("ZeRO-3"), folded("--seq-len")
    ('zero3', 'seqlen')
    """
    return _SEPARATORS.sub("", str(word).lower())
