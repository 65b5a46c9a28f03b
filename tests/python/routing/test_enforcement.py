"""What hosts are told leads packets over the paths of the report."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

import scalemodel as sm
import scalemodel._core as _core
from scalemodel.routing import segment_lists, source_ports, write_segment_lists

FABRICS = {
    "two tiers": sm.Fabric.leaf_spine(leaves=6, spines=4, nics_per_leaf=4),
    "a spine down": sm.Fabric.leaf_spine(leaves=6, spines=4, nics_per_leaf=4).failed(spines=[1]),
    "fat tree": sm.Fabric.fat_tree(ports=4),
}
JOBS = [{"pattern": "ring", "nics": [0, 5, 9, 14, 3, 2], "size_bytes": 1e9}]


@pytest.mark.parametrize("name", FABRICS)
def test_segments_walk_along_links_to_the_last_switch(name: str) -> None:
    fabric = FABRICS[name]
    report = sm.route(fabric, JOBS)
    ends = fabric.core.columns()
    up = ends["bandwidth_bytes_per_s"] > 0
    links = set(zip(ends["source"][up].tolist(), ends["destination"][up].tolist(), strict=True))
    leaf = dict(zip(ends["source"].tolist(), ends["destination"].tolist(), strict=True))
    nodes = {
        int(nic): int(node)
        for nic, node in zip(
            fabric.links().query("source_kind == 'nic'").source_number,
            fabric.links().query("source_kind == 'nic'").source,
            strict=True,
        )
    }
    for row in segment_lists(report, encoding="mpls", first_label=100).itertuples():
        first, last = leaf[nodes[row.source]], leaf[nodes[row.destination]]
        walk = [first, *row.switches]
        assert walk[-1] == last
        assert all(hop in links for hop in itertools.pairwise(walk))
        assert row.segments == [100 + node for node in row.switches]
        assert (len(row.switches) == 0) == (first == last)


@pytest.mark.parametrize("name", ["two tiers", "a spine down"])
def test_source_ports_hash_to_the_chosen_paths(name: str) -> None:
    fabric = FABRICS[name]
    report = sm.route(fabric, JOBS)
    ports = source_ports(report)
    paths = _core.path_columns(fabric.core, report.traffic.core)
    ends = fabric.core.columns()

    def mixed(value: int) -> int:
        return int(_core.ecmp_hash((value + 2**31) % 2**32 - 2**31))

    for flow, port in enumerate(ports.source_port.tolist()):
        own = np.unique(paths["path"][paths["flow"] == flow])
        if not own.size:
            assert port == 0
            continue
        host = paths["host_up"][flow], paths["host_down"][flow]
        source, leaf = int(ends["source"][host[0]]), int(ends["destination"][host[0]])
        inner = mixed(int(ends["destination"][host[1]]) + mixed(port))
        assert mixed(leaf + mixed(source + inner)) % own.size == report.columns["path"][flow]
    assert ports.tries.max() < 100


def test_a_controller_reads_the_lists(tmp_path: Path) -> None:
    report = sm.route(FABRICS["two tiers"], JOBS)
    file = write_segment_lists(report, tmp_path / "paths.json", prefix="2001:db8")
    read = json.loads(file.read_text())
    lists = segment_lists(report)
    assert len(read["flows"]) == (lists.switches.str.len() > 0).sum()
    assert all(sid.startswith("2001:db8:") for flow in read["flows"] for sid in flow["segments"])


def test_malformed_questions_name_the_argument() -> None:
    report = sm.route(FABRICS["two tiers"], JOBS)
    with pytest.raises(sm.ScaleModelError, match="encoding='ip'"):
        segment_lists(report, encoding="ip")
    with pytest.raises(sm.ScaleModelError, match="first_label=1048575"):
        segment_lists(report, encoding="mpls", first_label=1048575)
    with pytest.raises(sm.ScaleModelError, match="splits flows"):
        segment_lists(sm.route(FABRICS["two tiers"], JOBS, policy="spray"))
    with pytest.raises(sm.ScaleModelError, match="two tiers"):
        source_ports(sm.route(FABRICS["fat tree"], JOBS))
