"""Settings of Megatron-LM, read back from its flags."""

from __future__ import annotations

from typing import Any, Final

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.interop.settings.facts import with_facts
from scalemodel.interop.settings.given import Given
from scalemodel.interop.settings.hybrid_pattern import architecture_of, chunk_layers_of
from scalemodel.interop.settings.layouts import counts_ends, layout_layers
from scalemodel.interop.settings.question import Settings, model_of
from scalemodel.resolve.tasks import Training

_POSITION_READ: Final = {
    **{"rope": "rope", "yarn": "rope", "mrope": "rope"},
    **{"learned_absolute": "learned", "none": "none", "nope": "none"},
}
_NORM_READ: Final = {"rmsnorm": "rmsnorm", "layernorm": "layernorm"}
_CONTEXT_READ: Final = {
    **{"p2p": "ring", "a2a": "all_to_all", "allgather": "all_gather"},
    "a2a+p2p": "all_to_all",
}
_SHARDING_READ: Final = {
    **{"no_shard": "ddp", "optim": "zero1"},
    **{"optim_grads": "zero2", "optim_grads_params": "zero3"},
}
# What only says where data and results lie, how the optimizer steps, what is logged, and which
# kernels run: those are the software stack's.
_IRRELEVANT: Final = (
    *("adam", "async_save", "attention_softmax", "bias_", "ckpt", "clip", "data", "dist_ckpt"),
    *(
        "distributed",
        "eval",
        "exit",
        "finetune",
        "init",
        "lr",
        "load",
        "log",
        "manual_gc",
    ),
    *("moe_aux", "moe_grouped", "moe_permute", "moe_router_load", "moe_token"),
    *("lion", "master", "max_position", "merge", "muon"),
    *("min_lr", "mock", "nnodes", "no_bias", "no_load", "no_save", "node", "nproc", "num_workers"),
    *("optimizer", "override", "rdzv", "rotary", "save", "seed", "split", "start", "tensorboard"),
    *("tiktoken", "timing", "tokenizer", "train_iters", "train_samples", "use_mcore", "valid"),
    *("vocab_file", "wandb", "weight_decay", "use_cpu_init", "module"),
)
#: Settings of Muon that cost something, as they are predicted.
_MUON: Final = {
    "muon_num_ns_steps": "5",
    "muon_tp_mode": "blockwise",
    "muon_scalar_optimizer": "adam",
}
#: Optimizers of Megatron-Core that `Training` does not know: its SOAP computes eigenbases at every
#: step, of whole shards of any length (NVIDIA-NeMo/Emerging-Optimizers, legacy_soap/soap.py).
_NOT_OURS: Final = ("soap", "adaptive_muon")
#: What goes with other settings and changes nothing that is predicted.
_SAID_ALREADY: Final = (
    *("moe_flex_dispatcher_backend", "moe_enable_deepep", "cross_entropy_fusion_impl"),
    *(
        "fp8_recipe",
        "fp4_recipe",
        "bf16",
        "fp16",
        "cuda_graph_scope",
        "use_precision_aware_optimizer",
    ),
    *("moe_router_score_function", "moe_pad_expert_input_to_capacity", "devices", "num_nodes"),
    *("accelerator", "limit_val_batches", "average_in_collective", "eod_mask_loss", "random_seed"),
    *(
        "num_dataset_builder_threads",
        "reset_attention_mask",
        "reset_position_ids",
        "activation_func",
    ),
    *("params_dtype", "pipeline_dtype", "dtype", "max_steps"),
)


def _attention(given: Given, heads: int, hidden: int) -> dict[str, Any]:
    if given.flag("multi_latent_attention"):
        rope = given.count("qk_pos_emb_head_dim", default=64)
        return {
            "kv_heads": heads,
            "q_lora_rank": given.count("q_lora_rank", default=0),
            "kv_lora_rank": given.count("kv_lora_rank", default=32),
            "head_dim": given.count("qk_head_dim", default=128) + rope,
            "qk_rope_head_dim": rope,
            "v_head_dim": given.count("v_head_dim", default=128),
        }
    groups = given.count("num_query_groups", default=0)
    if not given.flag("group_query_attention", default=groups > 0):
        groups = 0
    return {
        "kv_heads": groups or heads,
        "head_dim": given.count("kv_channels", default=hidden // max(1, heads)),
    }


def _layer_pattern(given: Given, layers: int) -> dict[str, int]:
    """Leading dense layers and distance of expert layers, from moe_layer_freq."""
    value = given.raw("moe_layer_freq")
    if value is None:
        return {}
    text = str(value).replace(" ", "")
    if text.isdigit():
        return {"moe_every": max(1, int(text))}
    pattern = _evaluated(text)
    if len(pattern) != layers or set(pattern) - {0, 1} or 1 not in pattern:
        raise ScaleModelError(
            f"megatron: moe_layer_freq={value!r}: must be a whole number or one 0 or 1 for each "
            f"of {layers} layers",
            code="malformed_setting",
        )
    first = pattern.index(1)
    rest = pattern[first:]
    every = rest.index(1, 1) if 1 in rest[1:] else 1
    if any(bit != (i % every == 0) for i, bit in enumerate(rest)):
        raise ScaleModelError(
            f"megatron: moe_layer_freq={value!r}: must be leading zeros, then evenly spaced ones",
            code="malformed_setting",
        )
    return {"first_dense_layers": first - every + 1, "moe_every": every}


def _evaluated(text: str) -> list[int]:
    """A pattern such as ``([0]*3+[1]*58)`` or ``[0,1,1]`` as a list."""
    out: list[int] = []
    for part in text.strip("()").split("+"):
        listed, _, times = part.strip("()").partition("*")
        digits = listed.strip("[]").split(",")
        if not all(digit in ("0", "1") for digit in digits) or (times and not times.isdigit()):
            return []
        out += [int(digit) for digit in digits] * min(int(times or 1), 100_000)
    return out


def _architecture(given: Given, framework: str) -> dict[str, Any] | None:
    pattern = _pattern(given)
    if given.raw("num_layers") is None and pattern is None:
        return None
    layers = sum(chunk_layers_of(pattern)) if pattern else given.count("num_layers")
    signs = len(pattern.partition("/")[0].replace("|", "")) if pattern else layers
    if given.count("num_layers", default=signs) != signs:
        raise ScaleModelError(
            f"megatron: num_layers={given.raw('num_layers')!r}: hybrid_layer_pattern has {signs}",
            code="malformed_setting",
        )
    hidden = given.count("hidden_size")
    heads = given.count("num_attention_heads")
    gated = given.flag("swiglu", "gated_linear_unit")
    ffn = given.count("ffn_hidden_size", default=4 * hidden)
    bias = not given.flag(
        "disable_bias_linear", default=not given.flag("add_bias_linear", default=True)
    )
    # Megatron-LM's null tokenizer adds an end of document to the vocabulary; elsewhere the model
    # names its own.
    null = given.text("tokenizer_type") == "nulltokenizer" and framework == "megatron"
    vocab = given.count("padded_vocab_size", "vocab_size", default=0) + null
    if vocab == 0:
        raise ScaleModelError(
            "megatron: vocab_size: missing (the tokenizer's file is not read)",
            code="missing_setting",
        )
    table: dict[str, Any] = {
        **{"layers": layers, "hidden": hidden, "heads": heads, "vocab": vocab},
        **_attention(given, heads, hidden),
        "ffn": ffn,
        "gated": gated,
        "mlp_bias": bias,
        "out_bias": bias,
        "qkv_bias": given.flag("add_qkv_bias", default=bias) or bias,
        "qk_norm": given.flag("qk_layernorm"),
        "norm": given.choice(_NORM_READ, "normalization", default="layernorm"),
        "position": given.choice(_POSITION_READ, "position_embedding_type", default="learned"),
        "tied_embeddings": not given.flag(
            "untie_embeddings_and_output_weights",
            default=not given.flag("share_embeddings_and_output_weights", default=True),
        ),
        "mtp_layers": given.count("mtp_num_layers", default=(pattern or "").count("/")),
        "attention_gate": "values" if given.flag("attention_output_gate") else "none",
        "router_bias": given.flag("moe_router_enable_expert_bias"),
    }
    if table["position"] == "learned":
        table["positions"] = given.count("max_position_embeddings", "seq_length")
    window = given.raw("window_size")
    if window is not None:
        left = str(window).strip("()[] ").split(",")[0]
        table["window"] = int(left) + 1 if left.isdigit() else 0
        table["full_attention_every"] = given.count("window_attn_skip_freq", default=0)
    experts = given.count("num_experts", "num_moe_experts", default=0)
    if experts:
        shared = given.count("moe_shared_expert_intermediate_size", default=0)
        table |= {
            "experts": experts,
            "experts_per_token": given.count("moe_router_topk", default=2),
            "expert_ffn": given.count("moe_ffn_hidden_size", default=ffn),
            **({"shared_experts": 1, "shared_ffn": shared} if shared else {}),
            "shared_expert_gate": given.flag("moe_shared_expert_gate"),
            "expert_latent": given.count("moe_latent_size", default=0),
            "expert_groups": given.count("moe_router_num_groups", default=0),
            "groups_per_token": given.count("moe_router_group_topk", default=0),
            **({} if pattern else _layer_pattern(given, layers)),
        }
    return table | (architecture_of(pattern, given, hidden) if pattern else {})


def _pattern(given: Given) -> str | None:
    """The layers of a hybrid, a sign each."""
    text = given.text("hybrid_layer_pattern", "hybrid_override_pattern").strip("\"' ").upper()
    given.raw("spec", "is_hybrid_model", "hybrid_attention_ratio", "hybrid_mlp_ratio")
    return text or None


def _sharding(given: Given) -> tuple[str, int]:
    """Sharding, and into how many copies a fully sharded model is replicated."""
    fsdp = given.flag("use_megatron_fsdp", "use_custom_fsdp", "use_torch_fsdp2")
    # The older name of Muon whose states are sharded says the sharding as well.
    layers = given.text("optimizer") == "dist_muon"
    distributed = given.flag("use_distributed_optimizer") or layers
    usual = "zero3" if fsdp else "zero1" if distributed else "ddp"
    kept = given.choice(_SHARDING_READ, "data_parallel_sharding_strategy", default=usual)
    copies = given.count("num_distributed_optimizer_instances", default=1)
    if not fsdp:
        return ("zero1" if distributed else "ddp"), 1
    return ("hsdp", copies) if kept == "zero3" and copies > 1 else (kept, 1)


def _layout(given: Given, layers: int) -> list[int]:
    """Layers of every pipeline chunk where a layout writes them out."""
    text, pattern = given.raw("pipeline_model_parallel_layout"), _pattern(given)
    if pattern is not None:
        return chunk_layers_of(pattern) if "|" in pattern else []
    held = [] if text is None else layout_layers(str(text))
    if held and layers and sum(held) != layers:
        raise ScaleModelError(
            f"megatron: pipeline_model_parallel_layout={str(text)[:60]!r}: holds {sum(held)} "
            f"layers, must hold num_layers={layers}",
            code="malformed_setting",
        )
    return held


def _vpp(given: Given, pp: int, layers: int) -> int:
    held = _layout(given, layers)
    if held:
        if len(held) % max(1, pp) != 0:
            raise ScaleModelError(
                f"megatron: pipeline_model_parallel_layout: {len(held)} stages must be a multiple "
                f"of pipeline_model_parallel_size={pp}",
                code="malformed_setting",
            )
        return len(held) // max(1, pp)
    vpp = given.count(
        "num_virtual_stages_per_pipeline_rank",
        "virtual_pipeline_model_parallel_size",
        default=0,
    )
    each = given.count("num_layers_per_virtual_pipeline_stage", default=0)
    if vpp == 0 and each and layers:
        vpp = layers // pp // each
    return max(1, vpp)


def _recompute(given: Given, vpp: int) -> dict[str, Any]:
    usual = "selective" if given.flag("recompute_activations") else "none"
    legal = {"none": "none", "selective": "selective", "full": "full"}
    granularity = given.choice(legal, "recompute_granularity", default=usual)
    method = given.text("recompute_method", default="uniform")
    layers = given.count("recompute_num_layers", default=1)
    some = granularity == "full" and method == "block"
    return {"recompute": granularity, "recompute_layers": layers * vpp if some else 0}


def _strategy(given: Given, layers: int, accelerators: int) -> _core.Strategy:
    tp = given.count("tensor_model_parallel_size", default=1)
    pp = given.count("pipeline_model_parallel_size", default=1)
    cp = given.count("context_parallel_size", default=1)
    vpp = _vpp(given, pp, layers)
    sharding, copies = _sharding(given)
    replicas = accelerators // max(1, tp * pp)
    if copies > 1 and accelerators == 0:
        raise ScaleModelError(
            "megatron: num_distributed_optimizer_instances: the size of a shard group needs "
            "accelerators=",
            code="missing_setting",
        )
    ep = given.count("expert_model_parallel_size", default=1)
    return _core.Strategy(
        tp=tp,
        pp=pp,
        cp=cp,
        vpp=vpp,
        ep=ep,
        etp=given.count("expert_tensor_parallel_size", default=0) or tp,
        micro_batch=given.count("micro_batch_size", default=1),
        sharding=sharding,
        shard_degree=replicas // copies if copies > 1 else 0,
        schedule="interleaved" if vpp > 1 else "1f1b",
        context=given.choice(_CONTEXT_READ, "cp_comm_type", default="ring"),
        sequence_parallel=given.flag("sequence_parallel"),
        overlap_grad_reduce="on" if given.flag("overlap_grad_reduce") else "off",
        overlap_param_gather="on" if given.flag("overlap_param_gather") else "off",
        overlap_tp="ring" if given.flag("tp_comm_overlap") else "off",
        placement="tp-cp-pp-dp" if given.flag("use_tp_pp_dp_mapping") else "tp-cp-dp-pp",
        offload_optimizer=given.flag("optimizer_cpu_offload"),
        offload_activations=given.count("cpu_offloading_num_layers", default=0) > 0,
        **_recompute(given, vpp),
    )


def _precision(given: Given) -> str:
    named = given.text("precision", "mixed_precision")
    if given.raw("fp4_format", "fp4") or "fp4" in named:
        return "fp4"
    if given.raw("fp8_format", "fp8") or "fp8" in named:
        return "fp8"
    if given.flag("fp16") or "fp16" in named or named.startswith("16"):
        return "fp16"
    return "bf16" if given.flag("bf16") or "bf16" in named else "fp32"


def _task(given: Given) -> Training | None:
    batch, sequence = given.raw("global_batch_size"), given.raw("seq_length", "encoder_seq_length")
    if batch is None or sequence is None:
        return None
    backend = given.text("attention_backend", default="auto")
    return Training(
        global_batch=given.count("global_batch_size"),
        sequence=given.count("seq_length", "encoder_seq_length"),
        precision=_precision(given),  # type: ignore[arg-type]
        attention="unfused" if backend in ("unfused", "local") else "stack",
        gradient_precision="fp32" if _gradients_fp32(given, _precision(given)) else "bf16",
        dropout=_dropout(given),
        optimizer=_optimizer(given),  # type: ignore[arg-type]
    )


def _optimizer(given: Given) -> str:
    named = given.text("optimizer", default="adam")
    if named in _NOT_OURS:
        raise ScaleModelError(
            f"megatron: optimizer={named!r}: is not predicted as Megatron-Core has it; "
            "adam, sgd, muon and lion are",
            code="malformed_setting",
        )
    momentum = str(given.raw("sgd_momentum"))  # 0.9 where nothing says it: optimizer_config.py
    if named == "sgd":
        return "sgd" if momentum in ("0", "0.0") else "sgd_momentum"
    return {"muon": "muon", "dist_muon": "muon", "lion": "lion"}.get(named, "adam")


def _dropout(given: Given) -> bool:
    """Megatron's own default is 0.1."""
    for name in ("hidden_dropout", "attention_dropout"):
        value = given.raw(name)
        if value is None or str(value) not in ("0", "0.0"):
            return True
    return False


def _fusion(given: Given, *names: str, off: str) -> bool:
    """A fusion that is on unless a setting or its flag says otherwise."""
    return given.flag(*names, default=not given.flag(off))


def _gradients_fp32(given: Given, precision: str) -> bool:
    """Megatron adds BF16 gradients up in FP32 unless told otherwise, FP16 ones in FP16."""
    usual = precision not in ("fp16",) and not given.flag("grad_reduce_in_bf16")
    return given.flag("accumulate_allreduce_grads_in_fp32", "grad_reduce_in_fp32", default=usual)


def _selective(given: Given) -> dict[str, object]:
    modules = given.raw("recompute_modules")
    plain = {"selective_modules": "stack"}
    if modules is None:
        return {"selective": "core_attention", **plain}
    named = str(modules).replace(",", " ").strip("[]()").replace("'", "").split()
    if named == ["core_attn"]:
        return {"selective": "core_attention", **plain}
    # What a stack calls modules is written as norms and, where there are some, the other two.
    if "layernorm" in named and set(named) <= {"layernorm", "moe_act", "mla_up_proj"}:
        return {"selective": "modules", **plain}
    return {"selective": "modules", "selective_modules": "+".join(named)}


def _facts(given: Given, base: _core.Stack, layers: int) -> dict[str, Any]:
    """Facts of a stack that the settings state; what they leave out is Megatron's default."""
    flex = given.text("moe_token_dispatcher_type", default="alltoall") == "flex"
    given.raw(*_SAID_ALREADY)
    overlaps = given.flag("overlap_moe_expert_parallel_comm")
    inside = overlaps and bool(base.overlap_ep)
    unfused = given.text("attention_backend", default="auto") in ("unfused", "local")
    kept = base.attention in ("unfused", "fused_softmax")
    held = _layout(given, layers)
    ends = counts_ends(held, layers) if held else False
    factor = given.raw("moe_expert_capacity_factor")
    graphs = given.text("cuda_graph_impl", default="none") != "none"
    return {
        "attention": "unfused" if unfused else "flash2" if kept else base.attention,
        **(_selective(given) if given.text("recompute_granularity") == "selective" else {}),
        "fused_activation": _fusion(
            given,
            *("bias_activation_fusion", "bias_swiglu_fusion", "bias_gelu_fusion"),
            off="no_bias_swiglu_fusion",
        )
        and not given.flag("no_bias_gelu_fusion"),
        "fused_rope": _fusion(given, "apply_rope_fusion", off="no_rope_fusion"),
        "fused_loss": given.flag("cross_entropy_loss_fusion"),
        "grouped_launch": graphs or given.flag("enable_cuda_graph", "external_cuda_graph"),
        "drops_tokens": factor is not None and str(factor).lower() not in ("none", "null"),
        "fused_experts": given.flag("use_transformer_engine_op_fuser"),
        "vocab_multiple": max(
            1, given.count("make_vocab_size_divisible_by", default=base.vocab_multiple)
        ),
        "dropout": _dropout(given),
        "gradients_fp32": _gradients_fp32(given, _precision(given)),
        "overlap_grad_reduce": given.flag("overlap_grad_reduce"),
        "overlap_param_gather": given.flag("overlap_param_gather"),
        "overlap_tp": given.flag("tp_comm_overlap"),
        "overlap_p2p": _fusion(given, "overlap_p2p_comm", off="no_overlap_p2p_communication"),
        "overlap_ep": inside,
        "overlap_ep_between": overlaps and (bool(base.overlap_ep_between) or not inside),
        "deduplicated_dispatch": flex,
        "deduplicated_between": flex,
        "fused_accumulation": _fusion(
            given, "gradient_accumulation_fusion", off="no_gradient_accumulation_fusion"
        ),
        "fp32_router": given.text("moe_router_dtype", default="none") in ("fp32", "fp64"),
        "ends_as_layers": bool(base.ends_as_layers) if ends is None else ends,
    }


def read(
    values: dict[str, object], accelerators: int, base: _core.Stack, framework: str = "megatron"
) -> Settings:
    """Model, task, strategy and stack of Megatron's arguments, dashes as underscores."""
    given = Given(values, "megatron")
    architecture = _architecture(given, framework)
    layers = int(architecture["layers"]) if architecture else 0
    strategy = _strategy(given, layers, accelerators)
    task = _task(given)
    stack = with_facts(base, framework, _facts(given, base, layers))
    other = [name for name, usual in _MUON.items() if given.text(name, default=usual) != usual]
    unread = sorted([*(n for n in given.unread() if not n.startswith(_IRRELEVANT)), *other])
    return Settings(
        framework=framework,
        model=model_of(architecture, "megatron") if architecture else None,
        task=task,
        strategy=strategy,
        accelerators=accelerators,
        unread=tuple(unread),
        stack=stack,
    )
