"""Claims about whole runs: FSDP, selective recomputation, click models on ZionEX, failures."""

from __future__ import annotations

from functools import cache, partial

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel._core import Strategy
from scalemodel.economics import reliability
from scalemodel.estimator.estimate import Estimate, estimate
from scalemodel.resolve.tasks import Training
from scalemodel.studies import neo
from scalemodel.studies.cited_systems.claim import Claim


# --------------------------------------------------------------------------------------------- FSDP
@cache
def fsdp_flop_per_s(accelerators: int, sequences_each: int) -> float:
    """Flop/s of an A100, recomputation counted: GPT-3 175B sharded over all ranks.

    Examples
    --------
    >>> fsdp_flop_per_s(128, 1) < fsdp_flop_per_s(128, 2) < 312e12
    True
    """
    cluster = resolve.cluster("dgx_a100", accelerators=accelerators)
    task = Training(global_batch=sequences_each * accelerators, sequence=2048)
    plan = Strategy(sharding="zero3", micro_batch=sequences_each, recompute="full")
    # The paper's PyTorch, of before 2.1, repeated a layer to its end.
    stack = resolve.stack("pytorch_fsdp").replace(early_stop=False)
    est = estimate("gpt3_175b", cluster, task, plan, stack=stack)
    peaks = cluster.core.accelerator.peak_flop_per_s
    return float(est.core.hfu_fraction * peaks[_core.precisions().index("bf16")])


# -------------------------------------------------------------------------- selective recomputation
#: Nodes of 8, tensor and pipeline stages, chunks, batch and micro-batch of table 3.
_LAYOUTS = {
    "megatron_22b": (1, 8, 1, 1, 4, 4),
    "megatron_175b": (8, 8, 8, 3, 64, 1),
    "megatron_530b": (35, 8, 35, 3, 280, 1),
    "megatron_1t": (64, 8, 64, 1, 512, 1),
}


@cache
def korthikanti(model: str, recompute: str = "selective") -> Estimate:
    """A step of the paper's layout; tensor ranks share the sequence unless all is recomputed.

    Examples
    --------
    >>> korthikanti("megatron_22b").verdict
    'ok'
    """
    nodes, tp, pp, vpp, batch, micro_batch = _LAYOUTS[model]
    plan = Strategy(
        tp=tp,
        pp=pp,
        vpp=vpp,
        micro_batch=micro_batch,
        recompute=recompute,
        sequence_parallel=recompute == "selective",
    )
    task = Training(global_batch=batch, sequence=2048)
    cluster = resolve.cluster("selene", nodes=nodes)
    return estimate(model, cluster, task, plan, stack="megatron_lm_2021_22")


def _selective_gain(model: str) -> float:
    full, selective = korthikanti(model, "full"), korthikanti(model)
    return float(full.step_time_s / selective.step_time_s)


# ----------------------------------------------------------------------------------- Neo on ZionEX
@cache
def zionex_samples_per_s(name: str, tables: int) -> float:
    """Throughput of a run of `scalemodel.studies.neo`, by its number of tables.

    Examples
    --------
    >>> zionex_samples_per_s("I, 128 accelerators", 512) > 2.5e6
    True
    """
    table = neo.throughput([name])
    return float(table.set_index("tables").samples_per_s[tables])


# ----------------------------------------------------------------------------------------- failures
def mttf_s(accelerators: int) -> float:
    """Mean time to failure of a job at the rate of Meta's RSC-1.

    Examples
    --------
    >>> round(mttf_s(1024) / 3600, 1)
    28.8
    """
    return float(reliability(accelerators // 8, failures="rsc_1").mttf_s)


CLAIMS = (
    *(
        Claim(
            "fsdp",
            f"batch{each}",
            f"GPT-3 175B on 128 A100, {each} x 2,048 tokens each, flop/s",
            partial(fsdp_flop_per_s, 128, each),
        )
        for each in (1, 2)
    ),
    Claim(
        "fsdp",
        "linear",
        "the same, 512 over 128",
        lambda: fsdp_flop_per_s(512, 2) / fsdp_flop_per_s(128, 2),
        0.05,
    ),
    *(
        Claim(
            "korthikanti",
            f"step_{name.removeprefix('megatron_')}",
            f"step of {name.removeprefix('megatron_').upper()}, selective recomputation",
            lambda name=name: korthikanti(name).step_time_s,  # type: ignore[misc]
            dimension="s",
        )
        for name in _LAYOUTS
    ),
    Claim(
        "korthikanti",
        "gain_175b",
        "175B, selective over full recomputation",
        partial(_selective_gain, "megatron_175b"),
    ),
    Claim(
        "neo",
        "model_a_samples_per_s",
        "model A on 128, its about 1000s of tables read as 2,048",
        partial(zionex_samples_per_s, "A, 128 accelerators", 2048),
        0.2,
        entry="cited_runs",
    ),
    Claim(
        "neo",
        "model_i_samples_per_s",
        "model I on 128",
        partial(zionex_samples_per_s, "I, 128 accelerators", 512),
        0.2,
        entry="cited_runs",
    ),
    *(
        Claim("kokolis", f"mttf_{size}", f"failures of {size:,}", partial(mttf_s, size), 0.03, "s")
        for size in (16384, 131072)
    ),
)
