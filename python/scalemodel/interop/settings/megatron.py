"""Settings of Megatron-LM: the flags of its ``pretrain_gpt.py``.

Names are those of ``megatron/training/arguments.py`` (NVIDIA/Megatron-LM, 0.16).
"""

from __future__ import annotations

from typing import Final

from scalemodel.interop.settings import megatron_core
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


def write(job: Job) -> Launch:
    """Flags of ``pretrain_gpt.py``; data, learning rate and logging stay with the reader."""
    notes: list[str] = []
    settings = megatron_core.settings_of(job, notes)
    gated = bool(job.model.shape.gated)
    words = [word for setting in settings for word in _flags(setting, gated)]
    if job.strategy.sharding in ("zero2", "zero3", "hsdp"):
        words += ["--ckpt-format", "fsdp_dtensor"]  # the only one of Megatron FSDP: arguments.py
    return Launch(
        framework="megatron",
        command=job.torchrun("pretrain_gpt.py", *words),
        environment=megatron_core.environment(job),
        files={},
        notes=tuple(notes),
        run=_RUN,
    )
