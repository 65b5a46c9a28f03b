"""Texts: one template per reason code, and how quantities are written for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from scalemodel import _core
from scalemodel.space import divisors

if TYPE_CHECKING:
    from scalemodel.diagnosis import Fix
    from scalemodel.estimate import Estimate

GIB = 2.0**30

# ----------------------------------------------------------------------------------- quantities


def time_text(seconds: float, *, signed: bool = False) -> str:
    """Seconds with three digits and the unit that suits them; ``signed`` writes changes.

    Examples
    --------
    >>> time_text(17.234), time_text(0.0042), time_text(0.0), time_text(-0.5, signed=True)
    ('17.2 s', '4.20 ms', '0 s', '−500 ms')
    """
    if signed:
        return f"{'−' if seconds < 0 else '+'}{time_text(abs(seconds))}"
    if seconds == 0:
        return "0 s"
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= factor:
            return f"{_three_digits(seconds / factor)} {unit}"
    return f"{_three_digits(seconds / 1e-9)} ns"


def step_text(est: Estimate) -> str:
    """The step time of an estimate with its interval."""
    interval = est.interval()
    text = time_text(float(est.core.step_time_s))
    if interval is None:
        return text
    share = f"{100 * interval.coverage_fraction:.0f} %"
    return f"{text} ({share}: {time_text(interval.low_s)} to {time_text(interval.high_s)})"


def size_text(size_bytes: float) -> str:
    """Bytes in the binary unit that suits them.

    Examples
    --------
    >>> size_text(85899345920), size_text(2.0**29), size_text(0)
    ('80.0 GiB', '512 MiB', '0 B')
    """
    if size_bytes == 0:
        return "0 B"
    for unit, factor in (("TiB", 2.0**40), ("GiB", GIB), ("MiB", 2.0**20), ("KiB", 2.0**10)):
        if abs(size_bytes) >= factor:
            return f"{_three_digits(size_bytes / factor)} {unit}"
    return f"{size_bytes:.0f} B"


def percent_text(fraction: float, *, signed: bool = False) -> str:
    """A fraction as percent; ``signed`` writes changes.

    Examples
    --------
    >>> percent_text(0.4391), percent_text(-0.048, signed=True)
    ('43.9 %', '−4.8 %')
    """
    if signed:
        return f"{'−' if fraction < 0 else '+'}{abs(100 * fraction):.1f} %"
    return f"{100 * fraction:.1f} %"


def count_text(number: float) -> str:
    """A large number with a thousand-step prefix.

    Examples
    --------
    >>> count_text(488123.0), count_text(953.4), count_text(2.5e9)
    ('488 k', '953', '2.50 G')
    """
    for prefix, factor in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= factor:
            return f"{_three_digits(number / factor)} {prefix}"
    return _three_digits(number)


def money_text(usd: float) -> str:
    """US dollars with at least two significant digits.

    Examples
    --------
    >>> money_text(6.844), money_text(0.00312), money_text(12345.6)
    ('6.84 USD', '0.0031 USD', '12,346 USD')
    """
    if usd >= 1000:
        return f"{usd:,.0f} USD"
    return f"{usd:.2f} USD" if usd >= 0.1 else f"{usd:.2g} USD"


def _three_digits(number: float) -> str:
    size = abs(number)
    if size >= 99.95:
        return f"{number:,.0f}"
    return f"{number:.1f}" if size >= 9.995 else f"{number:.2f}"


def values_text(values: Iterable[object], limit: int = 12) -> str:
    """A set of legal values, shortened in the middle.

    Examples
    --------
    >>> values_text([1, 2, 4]), values_text(range(1, 100), limit=4)
    ('{1, 2, 4}', '{1, 2, 3, ..., 99}')
    """
    listed = [str(value) for value in values]
    if len(listed) > limit:
        listed = [*listed[: limit - 1], "...", listed[-1]]
    return "{" + ", ".join(listed) + "}"


# ------------------------------------------------------------------------------------ templates
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
        "dp=0 takes what is left.",
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
        "1f1b takes any vpp, interleaved needs vpp of 2 or more; gpipe, zero_bubble and dualpipe "
        "need vpp=1.",
    ),
    "dualpipe_stages": Template(
        "dualpipe with pp={pp} and {micro_batches} micro-batches per replica cannot run.",
        "It feeds the pipeline from both ends: pp even and at least 2*pp = {two_pp} micro-batches.",
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

_MEMORY_KINDS = (
    "activations",
    "weights",
    "gradients",
    "optimizer",
    "logits",
    "temporary",
    "communication",
    "gathered",
    "reserve",
)


def kinds_text(est: Estimate) -> str:
    """Memory by kind, largest first, as ``weights 4.4 GiB | ...``."""
    sizes = {kind: float(getattr(est.core, f"memory_{kind}_bytes")) for kind in _MEMORY_KINDS}
    ordered = sorted(sizes, key=lambda kind: -sizes[kind])
    return " | ".join(f"{kind} {size_text(sizes[kind])}" for kind in ordered if sizes[kind] > 0)


def degrees_of(est: Estimate) -> _core.Degrees:
    """Degrees as asked for, with those left open."""
    return _core.resolve_degrees(est.strategy, est.cluster.core, est.task.core)


def _question_facts(est: Estimate) -> dict[str, object]:
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
        "precision_values": ", ".join(name for name, peak in peaks.items() if peak > 0),
        "offloaded": ", ".join(
            kind
            for kind in ("weights", "activations", "optimizer")
            if getattr(s, f"offload_{kind}")
        ),
    }


def facts(est: Estimate) -> dict[str, object]:
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


def fix_text(fix: Fix, *, relative: bool) -> str:
    """A change and what it does; ``relative`` compares with the strategy it changes."""
    if relative and fix.time_change_fraction is not None and fix.memory_change_bytes is not None:
        sign = "−" if fix.memory_change_bytes < 0 else "+"
        return (
            f"{fix.change} ({percent_text(fix.time_change_fraction, signed=True)} time, "
            f"{sign}{size_text(abs(fix.memory_change_bytes))})"
        )
    fits = "" if fix.verdict == "ok" else ", does not fit"
    return f"{fix.change} (step {time_text(fix.step_time_s)}, {size_text(fix.memory_bytes)}{fits})"


def verdict_message(est: Estimate) -> str:
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
    return f"{est.verdict}   {what}\n  {why}"


def message(est: Estimate, fixes: list[Fix] | None = None) -> str:
    """What the verdict says, why, the numbers, and the changes that help.

    Parameters
    ----------
    est : Estimate
    fixes : list of Fix, optional
        What `diagnosis.fixes` found, where the caller has it already; empty: nothing helps.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_70b", sm.cluster("dgx_h100", nodes=6),
    ...                   sm.Training(global_batch=48, sequence=8192), sm.Strategy(tp=12))
    >>> print(message(est).splitlines()[0])
    illegal:tp_heads   tp=12 cannot split 64 attention heads (64 / 12 is not whole).
    """
    said = verdict_message(est)
    if est.fits:
        return said
    if fixes is None:
        from scalemodel import diagnosis

        fixes = diagnosis.fixes(est)
    relative, lines = est.reason == "out_of_memory", [said]
    if fixes:
        lines.append("  Fixes, fastest first:")
        lines += [f"    {fix_text(fix, relative=relative)}" for fix in fixes]
    else:
        lines.append("  No change of one or two knobs helps; more accelerators or a smaller task.")
    return "\n".join(lines)
