"""Files of clusters that are based on another one."""

from __future__ import annotations

from pathlib import Path

import pytest

import scalemodel as sm

OWN = 'base = "{}"\n[fabric]\nbandwidth = "200 Gbit/s"\n'


def written(path: Path, base: str, text: str = OWN) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.format(base), encoding="utf-8")
    return str(path)


def test_a_file_says_only_what_differs(tmp_path: Path) -> None:
    own = sm.cluster(written(tmp_path / "own.toml", "dgx_h100"), nodes=4)
    same = sm.cluster({"base": "dgx_h100", "fabric": {"bandwidth": "200 Gbit/s"}}, nodes=4)
    assert own.core == same.core
    assert own.core.fabric.bandwidth_bytes_per_s == 25e9
    whole = sm.cluster("dgx_h100", nodes=4).core
    assert own.core.accelerator == whole.accelerator
    assert own.core != whole


def test_files_and_private_entries_build_on_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALEMODEL_CATALOG_PATH", str(tmp_path))
    written(tmp_path / "clusters" / "own.toml", "dgx_h100", 'name = "own"\ntitle = "Own"\n' + OWN)
    larger = written(tmp_path / "larger.toml", "own", 'base = "{}"\nnodes = 16\n')
    assert sm.cluster(larger).accelerators == 128
    assert sm.cluster(larger).core.fabric.bandwidth_bytes_per_s == 25e9


@pytest.mark.parametrize("base", ["own.toml", "other.toml"])
def test_a_base_that_leads_back_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: str
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "own.toml", base)
    written(tmp_path / "other.toml", "own.toml")
    with pytest.raises(sm.ScaleModelError, match=r"^base='own\.toml': leads back to itself"):
        sm.cluster("own.toml")


def test_an_unknown_base_is_named(tmp_path: Path) -> None:
    with pytest.raises(sm.ScaleModelError, match="dgx_h1000"):
        sm.cluster(written(tmp_path / "own.toml", "dgx_h1000"))


@pytest.mark.parametrize("name", ["gh200_96", "gh200_144"])
def test_a_module_brings_its_own_cpu_and_memory(name: str) -> None:
    """A node of one superchip has no more host memory than its Grace CPU."""
    node = sm.cluster({"accelerator": name}).core
    assert (node.node_accelerators, node.host_memory_bytes, node.host_power_w) == (1, 480e9, 150)
    four = {"accelerator": name, "node": {"accelerators": 4}}
    assert sm.cluster(four).core.host_memory_bytes == 4 * 480e9
    stated = {**four, "node": {"accelerators": 4, "host_memory": "512 GB"}}
    assert sm.cluster(stated).core.host_memory_bytes == 512e9
    assert sm.cluster({"accelerator": "h100_sxm_80"}).core.host_memory_bytes == 2e12
