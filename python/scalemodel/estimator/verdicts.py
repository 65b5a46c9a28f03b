"""What a verdict means in words: one template per reason code, filled with the question."""

from __future__ import annotations

from typing import NamedTuple

import scalemodel._core as _core
from scalemodel.base.numbers import divisors
from scalemodel.base.text import size_text, time_text, values_text
from scalemodel.estimator.evaluation import Evaluation, degrees_of, kinds_text


class Template(NamedTuple):
    """What is wrong, and why it matters or what would be legal; fields of `facts` in braces."""

    what: str
    why: str


TEMPLATES: dict[str, Template] = {
    "ok": Template(
        "needs {memory} of {capacity} per accelerator ({spare} spare); step {step}.",
        "Memory peaks on pipeline stage {fullest_stage}: {kinds}.",
    ),
    "out_of_memory": Template(
        "needs {memory} per accelerator, {accelerator} has {capacity} -> {excess} too much on "
        "pipeline stage {fullest_stage}.",
        "{kinds}",
    ),
    "mesh": Template(
        "tp*cp*pp*dp = {tp}*{cp}*{pp}*{dp} = {mesh} but the cluster has {accelerators} "
        "accelerators.",
        "Every accelerator has one place in the mesh; tp*cp*pp has to divide {accelerators}, and "
        "dp=0 takes what is left.{as_many}",
    ),
    "tp_heads": Template(
        "tp={tp} cannot split {heads} attention heads ({heads} / {tp} is not whole).",
        "Each rank takes whole heads: tp in {tp_values}; up to tp={kv_heads} without copies of "
        "key and value heads.",
    ),
    "tp_ffn": Template(
        "tp={tp} cannot split a feed-forward layer of width {ffn}.",
        "Each rank takes an equal slice: tp in {tp_ffn_values}.",
    ),
    "pp_layers": Template(
        "pp*vpp = {pp}*{vpp} = {chunks} chunks but the model has {layers} layers.",
        "A chunk holds a layer, the embedding or the head: pp at most {layers}, pp*vpp two more.",
    ),
    "vpp_without_pp": Template(
        "vpp={vpp} needs a pipeline, but pp={pp}.",
        "Interleaving gives each pipeline rank several chunks; without a pipeline use vpp=1.",
    ),
    "vpp_schedule": Template(
        "schedule={schedule} does not run with vpp={vpp}.",
        "1f1b takes any vpp, interleaved needs vpp of 2 or more; the others need vpp=1: of them "
        "zero_bubble_v and dualpipe_v hold two chunks on each stage by themselves.",
    ),
    "dualpipe_stages": Template(
        "dualpipe with pp={pp} and {micro_batches} micro-batches per replica cannot run.",
        "It feeds the pipeline from both ends: pp even and at least 2*pp = {two_pp} micro-batches.",
    ),
    "dualpipe_v_batches": Template(
        "dualpipe_v with pp={pp} and {micro_batches} micro-batches per replica cannot run.",
        "It pairs the micro-batches on their way there with those on their way back: at least "
        "2*pp = {two_pp} micro-batches.",
    ),
    "cp_sequence": Template(
        "cp={cp} cannot split a sequence of {sequence} tokens.",
        "Each rank takes an equal part of the sequence: cp in {cp_values}.",
    ),
    "cp_heads": Template(
        "context=all_to_all splits {heads} heads over tp*cp = {tp}*{cp} = {tp_cp} ranks.",
        "Each rank takes whole heads: tp*cp in {tp_values}; ring and all_gather have no such "
        "limit.",
    ),
    "sp_sequence": Template(
        "sequence parallelism cannot split {local_sequence} tokens (sequence / cp) over tp={tp}.",
        "Norms and residuals are split over tp: tp has to divide {local_sequence}, or "
        "sequence_parallel=False.",
    ),
    "ep_experts": Template(
        "ep={ep} cannot split {expert_count}.",
        "Each rank takes whole experts: ep in {ep_values}.",
    ),
    "ep_mesh": Template(
        "ep*etp = {ep}*{etp} = {ep_etp} does not divide the {stage_ranks} ranks of a pipeline "
        "stage.",
        "Experts are laid over the tp*cp*dp = {tp}*{cp}*{dp} ranks of a stage.",
    ),
    "etp_ffn": Template(
        "etp={etp} cannot split experts of width {expert_ffn}.",
        "Each rank takes an equal slice of its experts: etp in {etp_values}.",
    ),
    "batch": Template(
        "global_batch={global_batch} is not a multiple of dp*micro_batch = {dp}*{micro_batch} = "
        "{per_pass}.",
        "Every replica runs the same number of micro-batches. Nearest batches: {batch_values}.",
    ),
    "shard_degree": Template(
        "a shard group of {shard} ranks does not divide the dp*cp = {dp}*{cp} = {replicas} "
        "replicas.",
        "Groups are equal: shard_degree in {shard_values}, or 0 for the ranks of a node.",
    ),
    "quantized_sharding": Template(
        "sharding={sharding} gathers no parameters, so that there is nothing to quantize.",
        "quantized_gather and quantized_reduce go with sharding=zero3 and hsdp.",
    ),
    "secondary_degree": Template(
        "secondary_degree={secondary_degree} does not go with sharding={sharding} over {shard} "
        "ranks.",
        "A second copy is of parameters that are gathered (zero3, hsdp), in equal parts of a shard "
        "group: secondary_degree in {secondary_values}, or 0 for none.",
    ),
    "recompute_layers": Template(
        "recompute_layers={recompute_layers} but the model has {layers} layers.",
        "At most {layers}; 0 recomputes every layer.",
    ),
    "precision": Template(
        "{accelerator} has no rate for precision={precision}.",
        "It computes in {precision_values}; what stays beside narrow formats runs in BF16.",
    ),
    "offload": Template(
        "offloaded tensors need {host_needed} of host memory per node, which has {host_memory}.",
        "Offloaded: {offloaded}.",
    ),
}


def _as_many(est: Evaluation, ranks: int) -> str:
    """The nodes that hold these ranks, where the cluster has fewer and they fill whole nodes."""
    each = int(est.cluster.core.node_accelerators)
    if ranks <= est.cluster.accelerators or ranks % each:
        return ""
    return f" {ranks} ranks take nodes={ranks // each} of {est.cluster.name}."


def _question_facts(est: Evaluation) -> dict[str, object]:
    s, task, shape = est.strategy, est.task, est.model.shape
    accelerators = est.cluster.accelerators
    degrees = degrees_of(est)
    dp, etp = degrees.dp, degrees.etp
    per_pass = dp * s.micro_batch
    below = task.global_batch // per_pass * per_pass
    core = est.cluster.core.accelerator
    peaks = dict(zip(_core.precisions(), core.peak_flop_per_s, strict=True))
    ffn = shape.ffn or shape.shared_experts * (shape.shared_ffn or shape.expert_ffn)
    expert_ffn = shape.expert_ffn or shape.ffn
    return {
        **s.to_dict(),
        "dp": dp,
        "etp": etp,
        "mesh": s.tp * s.cp * s.pp * dp,
        "as_many": _as_many(est, s.tp * s.cp * s.pp * dp),
        "accelerators": accelerators,
        "accelerator": est.cluster.accelerator,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads or shape.heads,
        "layers": shape.layers,
        "ffn": ffn,
        "expert_count": f"{shape.experts} experts" if shape.experts else "a model without experts",
        "expert_ffn": expert_ffn,
        "sequence": task.sequence,
        "local_sequence": task.sequence // s.cp,
        "global_batch": task.global_batch,
        "precision": task.precision,
        "chunks": s.pp * s.vpp,
        "two_pp": 2 * s.pp,
        "micro_batches": f"{task.global_batch / per_pass:g}",
        "tp_cp": s.tp * s.cp,
        "ep_etp": s.ep * etp,
        "stage_ranks": s.tp * s.cp * dp,
        "per_pass": per_pass,
        "replicas": dp * s.cp,
        "shard": degrees.shard,
        "tp_values": values_text(divisors(shape.heads, accelerators)),
        "tp_ffn_values": values_text(divisors(max(1, ffn), min(accelerators, shape.heads))),
        "cp_values": values_text(divisors(task.sequence, min(accelerators, 1024))),
        "ep_values": values_text(divisors(shape.experts) if shape.experts else [1]),
        "etp_values": values_text(divisors(max(1, expert_ffn), min(accelerators, 255))),
        "batch_values": ", ".join(str(b) for b in (below, below + per_pass) if b > 0),
        "shard_values": values_text(divisors(dp * s.cp)),
        "secondary_values": values_text(divisors(degrees.shard)),
        "precision_values": ", ".join(name for name, peak in peaks.items() if peak > 0),
        "offloaded": ", ".join(
            kind
            for kind in ("weights", "activations", "optimizer")
            if getattr(s, f"offload_{kind}")
        ),
    }


def facts(est: Evaluation) -> dict[str, object]:
    """Every value that a template may name."""
    core = est.core
    spare = core.memory_capacity_bytes - core.memory_bytes
    return {
        **_question_facts(est),
        "memory": size_text(core.memory_bytes),
        "capacity": size_text(core.memory_capacity_bytes),
        "spare": size_text(spare),
        "excess": size_text(-spare),
        "step": time_text(core.step_time_s),
        "fullest_stage": core.fullest_stage,
        "kinds": kinds_text(est),
        "host_needed": size_text(core.host_memory_bytes),
        "host_memory": size_text(est.cluster.core.host_memory_bytes),
    }


def what_is_wrong(est: Evaluation) -> str:
    """What the verdict says, as one sentence.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
    ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=3))
    >>> what_is_wrong(est)
    'tp*cp*pp*dp = 3*1*1*2 = 6 but the cluster has 8 accelerators.'
    """
    return TEMPLATES[est.reason].what.format_map(facts(est))


def verdict_message(est: Evaluation) -> str:
    """What the verdict says and why, on two lines, without a search for what would help.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
    ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=3))
    >>> print(verdict_message(est).splitlines()[0])
    illegal:mesh   tp*cp*pp*dp = 3*1*1*2 = 6 but the cluster has 8 accelerators.
    """
    template, values = TEMPLATES[est.reason], facts(est)
    what, why = template.what.format_map(values), template.why.format_map(values)
    shape = getattr(est.model, "read_as", "")
    read_as = f"\n  The model was read as {shape}." if shape else ""
    return f"{est.verdict}   {what}\n  {why}{read_as}"
