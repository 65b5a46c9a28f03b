"""Claims of cited systems: which are met, by how much the others are missed, and laws behind."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pytest

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.studies.cited_systems import CLAIMS, cited_systems, textbook_collectives
from scalemodel.studies.cited_systems import training as claims_of_training

#: Claims that the physics here does not reach; each says why.
MISSED = {
    ("megatron_2019", "8.3B on 512, of linear scaling"),
    ("p3", "largest gain of priorities"),
    ("cassini", "slowest step, 3 jobs on a link"),
    ("gshard", "steps per second of 4M tokens on 1,024 chips"),
    ("topoopt", "switches over direct links, full bandwidth"),
    ("topoopt", "direct links over switches of the same cost"),
    ("blueconnect", "all-reduce of ResNet-50 on 192, time saved"),
}

#: Numbers of the entry that claims are computed from.
INPUTS = {
    "blink": {"pcie"},
    "blueconnect": {"gradients", "nvlink", "infiniband"},
    "bruck": {"start_up", "transfer"},
    "topoopt": {"nic", "transceiver", "switch_port", "patch_port"},
}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return cited_systems()


def test_claims_are_met_but_those_known_to_be_missed(
    table: pd.DataFrame, summary_line: Callable[[str], None]
) -> None:
    for row in table.itertuples():
        summary_line(
            f"{row.system}, {row.claim}: {row.predicted:.4g}, published {row.published:.4g} "
            f"({row.error_fraction:+.0%})"
        )
    missed = table[~table.met]
    found = set(zip(missed.system, missed.claim, strict=True))
    assert found == MISSED
    assert (missed.reason != "").all()
    assert table.met.sum() == 47
    assert table.system.nunique() >= 24


def test_errors_are_of_the_published_number(table: pd.DataFrame) -> None:
    again = table.predicted / table.published - 1
    assert table.error_fraction.to_numpy() == pytest.approx(again.to_numpy())
    assert (table.met == (table.error_fraction.abs() <= table.within_fraction + 1e-9)).all()
    assert table.source.str.len().gt(20).all()


def test_every_published_number_is_a_claim_or_an_input() -> None:
    entry = catalog.load("reference", "cited_systems")
    given = {
        (system, key)
        for system, numbers in entry.items()
        if isinstance(numbers, dict)
        for key in numbers
    }
    inputs = {(system, key) for system, keys in INPUTS.items() for key in keys}
    own = {(claim.system, claim.key) for claim in CLAIMS if claim.entry == "cited_systems"}
    assert own == given - inputs
    # A number given to a prediction is never what the prediction is compared with.
    assert not own & inputs


def test_a_system_without_a_claim_is_refused() -> None:
    with pytest.raises(ScaleModelError, match=r"systems: 'zeros': makes no claim; .*zero"):
        cited_systems(["zeros"])


def test_stashed_weights_fill_the_first_stage_and_no_other() -> None:
    for stages in (1, 4, 16):
        kept = [
            _core.asynchronous_stage_bytes(
                stages, stage, weight_bytes=1 / stages, state_bytes=0.0, activation_bytes=0.0
            )
            for stage in range(stages)
        ]
        assert kept[0] == pytest.approx(1.0)
        assert kept == sorted(kept, reverse=True)
        assert kept[-1] == pytest.approx(1 / stages)
    two = [_core.weight_versions(8, stage, double_buffered=True) for stage in range(8)]
    assert two == [2] * 7 + [1]
    assert _core.asynchronous_s(0.25, 8) == 2.0
    for stage in (-1, 4):
        with pytest.raises(ValueError, match=rf"stage={stage}: must be from 0 to stages - 1 of 4"):
            _core.weight_versions(4, stage)


def test_zero_states_are_sixteen_bytes_a_parameter() -> None:
    by_stage = [claims_of_training.zero_bytes(name) for name in ("ddp", "zero1", "zero2", "zero3")]
    parameters = by_stage[0] / 16
    shares = [2 + 2 + 12, 2 + 2 + 12 / 64, 2 + 14 / 64, 16 / 64]
    assert by_stage == pytest.approx([parameters * share for share in shares])


def test_pipelines_speed_up_as_their_bubbles_say() -> None:
    for stages in (2, 4, 8):
        for micro_batches in (stages, 32):
            closed = stages * micro_batches / (micro_batches + stages - 1)
            found = claims_of_training.gpipe_speed_up(stages, micro_batches)
            assert found == pytest.approx(closed, rel=0.05)


# ---------------------------------------------------------------------------------------- textbooks
LINK = {"latency_s": 2e-6, "bandwidth_bytes_per_s": 10e9}


def test_logarithms_win_for_short_buffers_and_rings_never_send_more() -> None:
    table = textbook_collectives("all_gather", [1e3, 1e9], ranks=64, **LINK)
    times = table.pivot(index="algorithm", columns="size_bytes", values="time_s")
    assert times[1e3].idxmin() != "ring_all_gather"
    # Long buffers cost every algorithm the same bytes.
    assert times[1e9].max() == pytest.approx(times[1e9].min(), rel=0.01)


def test_a_parameter_server_per_worker_is_as_good_as_a_ring_and_one_is_not() -> None:
    def of(servers: int) -> float:
        table = textbook_collectives("all_reduce", [1e9], ranks=64, groups=servers, **LINK)
        return float(table.set_index("algorithm").time_s["parameter_server"])

    ring = textbook_collectives("all_reduce", [1e9], ranks=64, **LINK).set_index("algorithm")
    assert of(64) == pytest.approx(ring.time_s["ring_all_reduce"], rel=0.02)
    assert of(1) == pytest.approx(64 * of(64), rel=0.01)


def test_a_textbook_ring_is_the_librarys_without_its_fractions() -> None:
    """The library's ring pays more: start-up by hop and protocol, shares of the wire below one."""
    from scalemodel import resolve

    cluster = resolve.cluster("dgx_h100")
    size, link = 1e10, cluster.core.scale_up.bandwidth_bytes_per_s
    library = _core.collective_time_s("all_reduce", size, 8, 1, cluster.core, "ring")
    textbook = _core.textbook_collective_s(
        algorithm="ring_all_reduce",
        size_bytes=size,
        ranks=8,
        latency_s=0.0,
        bandwidth_bytes_per_s=link,
    )
    assert textbook < library < 1.5 * textbook


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"ranks": 0}, r"ranks=0.0: must be at least 1"),
        ({"latency_s": -1.0}, r"latency_s=-1.0: must be at least 0"),
        ({"bandwidth_bytes_per_s": 0.0}, r"bandwidth_bytes_per_s=0.0: must be above 0"),
        ({"groups": 3, "algorithm": "torus_all_reduce"}, r"groups=3.0: .* divisor"),
    ],
)
def test_malformed_links_are_refused(changes: dict[str, object], message: str) -> None:
    asked = {"algorithm": "ring_all_reduce", "size_bytes": 1e6, "ranks": 8, **LINK, **changes}
    with pytest.raises(ValueError, match=message):
        _core.textbook_collective_s(**asked)


def test_an_unknown_collective_is_refused() -> None:
    with pytest.raises(ScaleModelError, match=r"collective='scan': must be one of all_gather"):
        textbook_collectives("scan", [1e6], ranks=8, **LINK)


def test_loggp_adds_bytes_to_logp() -> None:
    short = _core.LogGP(latency_s=5e-6, overhead_s=1e-6, gap_s=3e-6)
    long = short.replace(gap_per_byte_s=1e-9)
    assert _core.loggp_s(1, 1, long) == _core.loggp_s(1e6, 1, short) == pytest.approx(7e-6)
    assert _core.loggp_s(1_000_001, 1, long) == pytest.approx(1.007e-3)
    # Short messages are spaced by g, long ones by their own bytes.
    assert _core.loggp_s(1, 11, short) == pytest.approx(7e-6 + 10 * 3e-6)
    assert _core.loggp_s(1_000_001, 2, long) == pytest.approx(1.007e-3 + 1.001e-3)
