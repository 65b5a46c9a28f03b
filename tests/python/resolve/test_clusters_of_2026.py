"""Clusters of 2026: each answers questions of training and serving, and says what is not sold."""

from __future__ import annotations

import math

import pytest

import scalemodel as sm

CLUSTERS = (
    "aws_trn3",
    "cloudmatrix384",
    "dgx_b300",
    "dgx_spark",
    "gb300_nvl72",
    "h20_node",
    "helios_mi455x",
    "mi355x_node",
    "rtx_5090_node",
    "rtx_pro_6000_node",
    "tpu_v7_pod",
    "vera_rubin_nvl72",
)


@pytest.mark.parametrize("name", CLUSTERS)
def test_training_is_searched_and_serving_estimated(name: str) -> None:
    cluster = sm.cluster(name, accelerators=16)
    task = sm.Training(global_batch=64, sequence=2048, precision="bf16")
    best = sm.search("llama3_8b", cluster, task, top=1)[0]
    assert best.fits
    assert 0 < best.step_time_s < math.inf
    node = sm.cluster(name)
    requests = sm.Inference(input_tokens=512, output_tokens=64)
    served = sm.serve("llama3_8b", node, requests, concurrency=4)
    assert 0 < served.tpot_s < math.inf
    assert 0 < served.ttft_s < math.inf


def test_announced_hardware_says_so_and_sold_hardware_does_not() -> None:
    rubin = sm.cluster("vera_rubin_nvl72", nodes=18)
    assert "not confirmed" in rubin.announced
    assert repr(rubin) == "Cluster('vera_rubin_nvl72', 72 x rubin, announced)"
    changed = sm.cluster({"base": "vera_rubin_nvl72", "fabric": {"bandwidth": "1600 Gbit/s"}})
    assert changed.announced == rubin.announced
    assert "AMD" in sm.cluster("helios_mi455x").announced
    with pytest.warns(UserWarning, match="accelerator rubin"):
        assert repr(sm.cluster("rubin")) == "Cluster('rubin', 8 x rubin, announced)"
    assert not sm.cluster("dgx_b300").announced


@pytest.mark.parametrize(
    "name", ["gb200_nvl72", "gb300_nvl72", "vera_rubin_nvl72", "helios_mi455x", "cloudmatrix384"]
)
def test_a_rack_is_as_many_nodes_as_its_domain_holds(name: str) -> None:
    rack = sm.cluster(name)
    assert rack.accelerators == rack.core.scale_up.domain


def test_a_layout_of_a_rack_on_a_tray_is_told_the_nodes() -> None:
    tray = sm.cluster("gb200_nvl72", nodes=1)
    task = sm.Training(global_batch=72, sequence=4096)
    wide = sm.estimate("llama3_8b", tray, task, sm.Strategy(tp=8, dp=9))
    assert "nodes=18 of gb200_nvl72" in str(wide.explain())
    small = sm.estimate("llama3_8b", tray, task, sm.Strategy(tp=3))
    assert "nodes=" not in str(small.explain())
