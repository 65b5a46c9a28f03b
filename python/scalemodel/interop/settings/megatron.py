"""Settings of Megatron-LM: the flags of its ``pretrain_gpt.py`` and ``pretrain_hybrid.py``.

Names are those of ``megatron/training/arguments.py`` (NVIDIA/Megatron-LM, 0.16).
"""

from __future__ import annotations

from typing import Final

from scalemodel.interop.settings import hybrid_pattern, megatron_core
from scalemodel.interop.settings.launches import Launch
from scalemodel.interop.settings.megatron_core import Setting
from scalemodel.interop.settings.question import Job

#: Flags that are not their setting with dashes.
_FLAG: Final = {
    "num_moe_experts": "num-experts",
    "gated_linear_unit": "swiglu",
    "virtual_pipeline_model_parallel_size": "num-virtual-stages-per-pipeline-rank",
    "fp8": "fp8-format",
    "fp4": "fp4-format",
    "grad_reduce_in_fp32": "accumulate-allreduce-grads-in-fp32",
}
#: Flags that switch off what is on without them.
_OFF: Final = {
    "add_bias_linear": "disable-bias-linear",
    "share_embeddings_and_output_weights": "untie-embeddings-and-output-weights",
    "apply_rope_fusion": "no-rope-fusion",
    "gradient_accumulation_fusion": "no-gradient-accumulation-fusion",
    "overlap_p2p_comm": "no-overlap-p2p-communication",
    "grad_reduce_in_fp32": "grad-reduce-in-bf16",
}
#: Of those, what `_FLAG` switches on as well.
_BOTH: Final = ("grad_reduce_in_fp32",)
_HYBRID_SPEC: Final = ("megatron.core.models.hybrid.hybrid_layer_specs", "hybrid_stack_spec")
#: What arguments.py derives from a pattern and refuses beside it.
_SAID_BY_PATTERN: Final = (
    *("num_layers", "moe_layer_freq", "mtp_num_layers", "pipeline_model_parallel_layout"),
    "virtual_pipeline_model_parallel_size",
)
#: What only the owner of the job knows: arguments.py needs all of it.
_RUN: Final = (
    *("--train-iters", "1000", "--lr", "1e-4", "--min-lr", "1e-5", "--lr-decay-style", "cosine"),
    *("--mock-data", "--split", "99,1,0", "--eval-iters", "0", "--eval-interval", "1000"),
    *("--log-interval", "1", "--log-throughput"),
)


def _flags(setting: Setting, gated: bool) -> list[str]:
    name, value = setting.name, setting.value
    if name == "vocab_size":  # the null tokenizer adds one end of document
        return ["--tokenizer-type", "NullTokenizer", "--vocab-size", str(int(str(value)) - 1)]
    if name == "num_query_groups":
        return ["--group-query-attention", "--num-query-groups", str(value)]
    if name == "cross_entropy_fusion_impl":  # arguments.py refuses Transformer Engine's since 0.17
        value = "native"
    if name == "bias_activation_fusion":
        off = "--no-bias-swiglu-fusion" if gated else "--no-bias-gelu-fusion"
        return [] if value else [off]
    flag = f"--{_FLAG.get(name, name.replace('_', '-'))}"
    if value is False:
        return [f"--{_OFF[name]}"] if name in _OFF else []
    if value is True:
        return [flag] if name not in _OFF or name in _BOTH else []
    if name == "moe_layer_freq":
        return [flag, str(value).replace(" ", "")]
    if isinstance(value, list):
        return [flag, *map(str, value)]
    return [flag, str(value)]


def _hybrid(pattern: str, job: Job, settings: list[Setting]) -> list[Setting]:
    """Settings of a hybrid: its pattern says layers, stages and where experts are."""
    sizes = hybrid_pattern.settings_of(job.model.shape)
    return [
        Setting("model", "hybrid_layer_pattern", pattern),
        Setting("model", "spec", list(_HYBRID_SPEC)),
        *(Setting("model", name, size) for name, size in sizes.items()),
        *(setting for setting in settings if setting.name not in _SAID_BY_PATTERN),
    ]


def write(job: Job) -> Launch:
    """Flags of a script of Megatron-LM; data, learning rate and logging stay with the reader."""
    notes: list[str] = []
    pattern = hybrid_pattern.pattern_of(job.model.shape, job.chunk_layers)
    settings = megatron_core.settings_of(
        job, notes, () if pattern is None else ("mixers", "feed_forwards")
    )
    if pattern is not None:
        settings = _hybrid(pattern, job, settings)
    gated = bool(job.model.shape.gated)
    words = [word for setting in settings for word in _flags(setting, gated)]
    if job.strategy.sharding in ("zero2", "zero3", "hsdp"):
        words += ["--ckpt-format", "fsdp_dtensor"]  # the only one of Megatron FSDP: arguments.py
    return Launch(
        framework="megatron",
        command=job.torchrun(
            "pretrain_gpt.py" if pattern is None else "pretrain_hybrid.py", *words
        ),
        environment=megatron_core.environment(job),
        files={},
        notes=tuple(notes),
        run=_RUN,
    )
