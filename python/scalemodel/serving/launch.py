"""Commands that start a chosen serving plan."""

from __future__ import annotations

import shlex

from scalemodel.base.errors import ScaleModelError
from scalemodel.serving.plan import ServingPlan

_VLLM_FORMATS = {"fp8": "fp8", "fp8_block": "fp8", "int4": "awq", "mxfp4": "mxfp4"}
_SGLANG_FORMATS = {**_VLLM_FORMATS, "fp4": "modelopt_fp4"}


def _steps(plan: ServingPlan) -> tuple[int, int]:
    """Sequences and tokens of the largest step."""
    if plan.deployment is None or plan.state is None:
        raise ScaleModelError(f"launch: the plan does not run ({plan.verdict})")
    capacity = plan.deployment.capacity(plan.task.input_tokens, plan.task.output_tokens)
    # A rate asks for room in bursts, a concurrency for no more than itself.
    running = capacity.most_sequences if plan.asked_rate else plan.state.concurrency
    return max(1, round(running)), int(capacity.most_tokens)


def _length(plan: ServingPlan) -> int:
    return int(plan.task.input_tokens + plan.task.output_tokens)


def _vllm(plan: ServingPlan) -> list[str]:
    layout, task = plan.layout, plan.task
    sequences, tokens = _steps(plan)
    words = ["vllm", "serve", plan.model.name, "--tensor-parallel-size", str(layout.tp)]
    if layout.pp > 1:
        words += ["--pipeline-parallel-size", str(layout.pp)]
    if layout.dp > 1:
        words += ["--data-parallel-size", str(layout.dp)]
    if layout.cp > 1:
        words += ["--decode-context-parallel-size", str(layout.cp)]
    if layout.ep > 1:
        words.append("--enable-expert-parallel")
    words += ["--max-model-len", str(_length(plan)), "--max-num-seqs", str(sequences)]
    words += ["--max-num-batched-tokens", str(tokens)]
    if task.precision in _VLLM_FORMATS:
        words += ["--quantization", _VLLM_FORMATS[task.precision]]
    if task.kv_precision == "fp8":
        words += ["--kv-cache-dtype", "fp8"]
    if task.speculative_tokens:
        draft = f'{{"method": "mtp", "num_speculative_tokens": {task.speculative_tokens}}}'
        words += ["--speculative-config", draft]
    if not task.prefix_hit_fraction:
        words.append("--no-enable-prefix-caching")
    return words


def _sglang(plan: ServingPlan) -> list[str]:
    layout, task = plan.layout, plan.task
    sequences, tokens = _steps(plan)
    ranks = layout.tp * layout.dp * layout.cp
    words = ["python", "-m", "sglang.launch_server", "--model-path", plan.model.name]
    # SGLang counts all ranks of a stage as tensor-parallel, attention's share of them apart.
    words += ["--tp-size", str(ranks)]
    if layout.pp > 1:
        words += ["--pp-size", str(layout.pp)]
    if layout.dp > 1:
        words += ["--dp-size", str(layout.dp), "--enable-dp-attention"]
    if layout.ep > 1:
        words += ["--ep-size", str(layout.ep)]
    words += ["--context-length", str(_length(plan)), "--max-running-requests", str(sequences)]
    words += ["--chunked-prefill-size", str(tokens)]
    if task.precision in _SGLANG_FORMATS:
        words += ["--quantization", _SGLANG_FORMATS[task.precision]]
    if task.kv_precision == "fp8":
        words += ["--kv-cache-dtype", "fp8_e4m3"]
    if task.speculative_tokens:
        words += ["--speculative-algorithm", "NEXTN"]
        words += ["--speculative-num-steps", str(task.speculative_tokens)]
    if not task.prefix_hit_fraction:
        words.append("--disable-radix-cache")
    return words


def _tensorrt_llm(plan: ServingPlan) -> list[str]:
    layout = plan.layout
    sequences, tokens = _steps(plan)
    ranks = layout.tp * layout.dp * layout.cp
    words = ["trtllm-serve", plan.model.name, "--tp_size", str(ranks)]
    words += ["--pp_size", str(layout.pp)]
    if layout.ep > 1:
        words += ["--ep_size", str(layout.ep)]
    words += ["--max_seq_len", str(_length(plan)), "--max_batch_size", str(sequences)]
    words += ["--max_num_tokens", str(tokens)]
    from scalemodel.resolve.engines import engine

    share = engine(plan.engine).memory_fraction
    words += ["--kv_cache_free_gpu_memory_fraction", f"{share:g}"]
    if layout.dp > 1 or plan.task.kv_precision == "fp8":
        words += ["--extra_llm_api_options", "options.yaml"]
    return words


def launch_command(plan: ServingPlan) -> str:
    """The command line of one instance, ready for a shell.

    What the command line of TensorRT-LLM cannot say (attention data parallelism, format of the
    cache) is expected in ``options.yaml``; `launch_options` writes it.

    Raises
    ------
    ScaleModelError : the plan does not run, or its engine has no such command.
    """
    writers = {"vllm": _vllm, "sglang": _sglang, "tensorrt": _tensorrt_llm}
    for start, writer in writers.items():
        if plan.engine.startswith(start):
            if plan.model.name.startswith("-"):
                raise ScaleModelError(
                    f"model={plan.model.name!r}: starts with '-': its command would take it for an "
                    "option"
                )
            return shlex.join(writer(plan))
    raise ScaleModelError(f"engine={plan.engine!r}: no command is known that starts it")


def launch_options(plan: ServingPlan) -> str:
    """What stands in ``options.yaml`` beside the command of TensorRT-LLM; empty when nothing.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=1000, output_tokens=100, precision="fp8",
    ...                     kv_precision="fp8")
    >>> plan = sm.serve("llama3_70b", "dgx_h100", task, sm.ServingLayout(tp=4),
    ...                 engine="TensorRT-LLM")
    >>> print(launch_options(plan))
    kv_cache_config:
      dtype: fp8
    """
    lines = []
    if plan.layout.dp > 1:
        lines.append("enable_attention_dp: true")
    if plan.task.kv_precision == "fp8":
        lines += ["kv_cache_config:", "  dtype: fp8"]
    if plan.task.speculative_tokens:
        lines += ["speculative_config:", "  decoding_type: MTP"]
        lines.append(f"  num_nextn_predict_layers: {plan.task.speculative_tokens}")
    return "\n".join(lines)
