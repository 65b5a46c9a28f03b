"""Exchanges of tokens with their experts and transfers of KV caches, beside those published."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import scalemodel as sm
from scalemodel.validation import scores_of

SEND = {
    "library": "DeepEP V1",
    "gpu": "H800",
    "n_gpus": "32",
    "gpus_per_node": "8",
    "kernel": "low latency",
    "direction": "dispatch",
    "tokens_per_rank": "128",
    "hidden": "7168",
    "topk": "8",
    "experts": "288",
    "bytes_per_token": "7392",
    "bound": "RDMA",
    "bandwidth_kind": "tokens x topk x bytes / latency",
}
MOVE = {"system": "Mooncake", "link_peak_GB_s": "200", "bytes_MB": "4500"}


def asked(kind: str, tmp_path: Path, *rows: dict[str, str], left_out: bool = False) -> pd.DataFrame:
    path = tmp_path / "rows.csv"
    pd.DataFrame(rows).fillna("").to_csv(path, index=False)
    return sm.validate(kind, path, left_out=left_out)


@pytest.mark.parametrize(("kind", "largest"), [("moe_a2a", 0.08), ("kv_transfer", 0.1)])
def test_published_calls_are_met(kind: str, largest: float) -> None:
    scores = scores_of(kind, sm.validate(kind)).to_dict()
    assert scores["pooled"]["mape_fraction"] < largest
    of_many = [group for group in scores["groups"] if group["predicted"] >= 4]
    assert all(group["mape_fraction"] < 0.2 for group in of_many)


@pytest.mark.parametrize("kind", ["moe_a2a", "kv_transfer"])
def test_systems_that_no_constant_has_seen_are_met(kind: str) -> None:
    scores = scores_of(kind, sm.validate(kind, left_out=True)).to_dict()
    seen = scores_of(kind, sm.validate(kind)).to_dict()
    assert seen["pooled"]["mape_fraction"] < scores["pooled"]["mape_fraction"] < 0.2
    assert seen["rows_predicted"] == scores["rows_predicted"]


@pytest.mark.parametrize(
    ("kind", "row", "other", "measured"),
    [
        ("moe_a2a", SEND, {"n_gpus": "128"}, "latency_us"),
        ("kv_transfer", MOVE | {"link": "a"}, {"link": "b"}, "bandwidth_GB_s"),
    ],
)
def test_a_row_left_out_is_not_moved_by_its_own_system(
    kind: str, row: dict[str, str], other: dict[str, str], measured: str, tmp_path: Path
) -> None:
    def found(own: str, others: str) -> float:
        rows = [row | {measured: own}, row | other | {measured: others}]
        return float(asked(kind, tmp_path, *rows, left_out=True).predicted_latency_us[0])

    assert found("150", "180") == found("300", "180") != found("150", "140")


def test_the_rate_is_what_the_source_counts_over_the_time(tmp_path: Path) -> None:
    found = asked("moe_a2a", tmp_path, SEND).iloc[0]
    counted = 128 * 8 * 7392
    assert found.predicted_bandwidth_GB_s == pytest.approx(
        counted / found.predicted_latency_us / 1e3
    )


def test_bytes_tokens_and_nodes_weigh_as_they_should(tmp_path: Path) -> None:
    rows = [
        SEND,
        {**SEND, "tokens_per_rank": "256"},
        {**SEND, "bytes_per_token": "14336"},
        {**SEND, "n_gpus": "256"},
        {**SEND, "n_gpus": "8", "bound": "NVLink"},
    ]
    usual, tokens, wide, far, near = asked("moe_a2a", tmp_path, *rows).predicted_latency_us
    assert usual < tokens < 2 * usual
    assert usual < wide < 2 * usual
    assert near < usual < far


def test_long_transfers_reach_a_share_of_their_links(tmp_path: Path) -> None:
    rows = [MOVE, {**MOVE, "bytes_MB": "9000"}, {**MOVE, "bytes_MB": "1"}, {**MOVE, "bytes_MB": ""}]
    usual, twice, short, long = asked("kv_transfer", tmp_path, *rows).predicted_bandwidth_GB_s
    assert short < usual < twice < long < 200


@pytest.mark.parametrize(
    ("kind", "changes", "reason"),
    [
        ("moe_a2a", {"library": "other"}, "unsupported:other"),
        ("moe_a2a", {"direction": "sideways"}, "unsupported:sideways"),
        ("moe_a2a", {"gpu": "Nothing-1"}, "unknown_accelerator:Nothing-1"),
        ("moe_a2a", {"hidden": ""}, "missing:hidden"),
        ("kv_transfer", {"link_peak_GB_s": ""}, "missing:link_peak_GB_s"),
        ("kv_transfer", {"link_peak_GB_s": "-1"}, "illegal:link_peak_GB_s"),
    ],
)
def test_a_row_that_cannot_be_asked_says_why(
    kind: str, changes: dict[str, str], reason: str, tmp_path: Path
) -> None:
    row = SEND if kind == "moe_a2a" else MOVE
    assert list(asked(kind, tmp_path, {**row, **changes}).skip_reason) == [reason]
