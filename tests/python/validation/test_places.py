"""Where a row of measured runs took place: what its numbers count, and over which network."""

from __future__ import annotations

import pytest

from reference.runs import LLAMA
from scalemodel.resolve.accelerators import accelerator_table, build_accelerator
from scalemodel.validation.place import Place, place
from scalemodel.validation.prediction import Predictor
from scalemodel.validation.published import published_table
from scalemodel.validation.rows import Row
from scalemodel.validation.training import question

TRAINIUM = {
    "framework": "NeuronX Distributed 2.24",
    "gpu": "Trainium1",
    "gpu_mem_GB": "32",
    "n_gpus": "512",
    "gpus_per_node": "16",
    "nic_gbps_per_gpu": "50",
    "network": "EFA",
}


def placed(**cells: str) -> tuple[Place, list[str]]:
    notes: list[str] = []
    return place(Row(LLAMA | TRAINIUM | cells), notes), notes


def test_degrees_may_count_the_cores_of_a_device() -> None:
    cores, notes = placed(tp="32", pp="8", dp="4")
    assert (cores.accelerator, cores.accelerators) == ("trainium1_core", 1024)
    assert cores.node_accelerators == 32
    assert dict(cores.fabric) == {"bandwidth": "25 Gbit/s", "class": "efa"}
    assert notes == ["degrees count trainium1_core"]
    devices, notes = placed(tp="16", pp="8", dp="4")
    assert (devices.accelerator, devices.accelerators, notes) == ("trainium1", 512, [])
    assert dict(devices.fabric)["bandwidth"] == "50 Gbit/s"


def test_networks_of_rented_accelerators_are_those_of_their_servers() -> None:
    silent = {"nic_gbps_per_gpu": "", "network": "", "tp": "8", "pp": "1", "dp": "64"}
    devices, notes = placed(**silent)
    assert dict(devices.fabric) == {"bandwidth": "50 Gbit/s", "class": "efa"}
    assert notes == ["nic 50 Gbit/s assumed"]
    cores, _ = placed(**silent | {"dp": "128"})
    assert dict(cores.fabric) == {"bandwidth": "25 Gbit/s", "class": "efa"}
    tpus, _ = placed(**silent, gpu="TPU v5p", gpu_mem_GB="", gpus_per_node="4")
    assert dict(tpus.fabric) == {"bandwidth": "50 Gbit/s", "class": "tpu_dcn"}


def test_a_server_of_eight_mi250x_counts_their_dies() -> None:
    told = {"gpu": "MI250X", "gpu_mem_GB": "", "tp": "8", "pp": "1", "dp": "64"}
    dies, notes = placed(**told, gpus_per_node="8")
    assert (dies.accelerator, dies.accelerators, dies.node_accelerators) == ("mi250x_gcd", 512, 8)
    assert notes == ["gpus_per_node counts mi250x_gcd"]
    modules, notes = placed(**told, gpus_per_node="4")
    assert (modules.accelerator, modules.node_accelerators, notes) == ("mi250x", 4, [])
    assert placed(**told | {"gpu": "MI250X GCD"}, gpus_per_node="8")[0] == dies


@pytest.mark.parametrize(("part", "count"), [("trainium1_core", 2), ("trainium2_core", 4)])
def test_parts_sum_up_to_the_whole(part: str, count: int) -> None:
    whole = build_accelerator(accelerator_table(part.removesuffix("_core")))
    one = build_accelerator(accelerator_table(part))
    for amount in ("memory_capacity_bytes", "memory_bandwidth_bytes_per_s"):
        assert count * getattr(one, amount) == pytest.approx(getattr(whole, amount))
    assert [count * peak for peak in one.peak_flop_per_s] == pytest.approx(whole.peak_flop_per_s)


def test_trainium_is_met_by_facts_alone() -> None:
    table = published_table("training")
    rows = [row for row in table.select(table.header) if row.text("gpu") == "Trainium1"]
    predictor = Predictor()
    errors = [
        predictor.predict(question(row)).step_time_s / row.number("norm_step_time_s") - 1
        for row in rows
    ]
    assert len(errors) == 8
    assert sum(map(abs, errors)) / len(errors) < 0.1
    assert max(map(abs, errors)) < 0.2
