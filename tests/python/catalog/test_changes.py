"""What was made of an entry is made again when the entry, or the folders it comes from, change."""

from __future__ import annotations

import copy
import os
import pickle
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import scalemodel as sm
from scalemodel import catalog
from scalemodel.calibration.entry import toml_text
from scalemodel.resolve import stack as resolved_stack
from scalemodel.resolve.attention import AttentionKernels
from scalemodel.resolve.engines import engine

TASK = sm.Training(global_batch=256, sequence=8192)
PLAN = sm.Strategy(tp=8, pp=2)

Change = Callable[[dict[str, Any]], Mapping[str, object]]


def slower_products(table: dict[str, Any]) -> Mapping[str, object]:
    return {**table, "gemm": {**table["gemm"], "sustained_fraction": 0.5}}


def thinner_links(table: dict[str, Any]) -> Mapping[str, object]:
    ops = {op: {**cell, "b2": 0.5 * cell["b2"]} for op, cell in table.items() if "b2" in cell}
    return {**table, **ops}


def longer_ways(table: dict[str, Any]) -> Mapping[str, object]:
    return {**table, "latency_factor": {"value": 50.0}, "bandwidth_fraction": {"value": 0.1}}


def more_layers(table: dict[str, Any]) -> Mapping[str, object]:
    return {**table, "architecture": {**table["architecture"], "layers": 96}}


def slower_software(table: dict[str, Any]) -> Mapping[str, object]:
    return {**table, "stack": {**table["stack"], "gemm_efficiency": {"value": 0.4}}}


CHANGES: list[tuple[str, str, Change]] = [
    ("accelerators", "h100_sxm_80", slower_products),
    ("interconnects", "nvlink4", thinner_links),
    ("interconnects", "infiniband", longer_ways),
    ("models", "llama3_70b", more_layers),
    ("stacks", "plain", slower_software),
]


def step_time_s() -> float:
    return float(sm.estimate("llama3_70b", sm.cluster("dgx_h100", nodes=8), TASK, PLAN).step_time_s)


def write(folder: Path, kind: str, name: str, text: str) -> None:
    path = folder / kind / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    old_ns = path.stat().st_mtime_ns if path.is_file() else 0
    path.write_text(text, encoding="utf-8")
    if path.stat().st_mtime_ns == old_ns:  # written twice within a tick of the file system
        os.utime(path, ns=(old_ns, old_ns + 1_000_000))


@pytest.mark.parametrize("kind, name, change", CHANGES)
def test_a_private_entry_counts_at_once(
    kind: str, name: str, change: Change, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped_s, table = step_time_s(), catalog.load(kind, name)
    write(tmp_path, kind, name, toml_text(change(dict(table))))
    monkeypatch.setenv("SCALEMODEL_CATALOG_PATH", str(tmp_path))
    assert step_time_s() > 1.01 * shipped_s
    write(tmp_path, kind, name, toml_text(table))  # the same file with other numbers
    assert step_time_s() == shipped_s
    write(tmp_path, kind, name, toml_text(change(dict(table))))
    assert step_time_s() > 1.01 * shipped_s
    monkeypatch.delenv("SCALEMODEL_CATALOG_PATH")
    assert step_time_s() == shipped_s


def test_an_alias_known_already_costs_a_look_at_one_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert catalog.find("accelerators", "NVIDIA H100 80GB HBM3") == "h100_sxm_80"
    looked: list[str] = []
    stamp = catalog._modified_ns

    def noted(path: str | Path) -> int:
        looked.append(Path(path).stem)
        return stamp(path)

    monkeypatch.setattr(catalog, "_modified_ns", noted)
    assert catalog.find("accelerators", "NVIDIA H100 80GB HBM3") == "h100_sxm_80"
    assert looked == ["h100_sxm_80"]


def test_aliases_of_private_entries_count_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alias, table = "NVIDIA H100 80GB HBM3", dict(catalog.load("accelerators", "a100_sxm_80"))
    table.pop("aliases", None)
    monkeypatch.setenv("SCALEMODEL_CATALOG_PATH", str(tmp_path))
    assert catalog.find("accelerators", alias) == "h100_sxm_80"

    def named(name: str, *aliases: str) -> None:
        text = toml_text({**table, "name": name, "title": name, "aliases": list(aliases)})
        write(tmp_path, "accelerators", name, text)

    named("mine", "My Part")  # a further file in a folder that was not there
    assert catalog.find("accelerators", "my part") == "mine"
    named("mine", "Their Part")  # the same file with another alias
    assert catalog.find("accelerators", "their-part") == "mine"
    assert not catalog.is_entry("accelerators", "my part")
    named("other", "My Part")
    assert catalog.find("accelerators", "my part") == "other"
    (tmp_path / "accelerators" / "other.toml").unlink()
    assert not catalog.is_entry("accelerators", "my part")
    assert catalog.find("accelerators", alias) == "h100_sxm_80"


def test_an_edited_entry_of_the_package_has_the_aliases_it_has_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = catalog.load("accelerators", "a100_sxm_80")
    folder = tmp_path / "accelerators"
    monkeypatch.setattr(catalog, "_EMBEDDED_FOLDERS", {"accelerators": str(folder)})

    def aliased(*aliases: str) -> None:
        text = toml_text({**shipped, "name": "part", "title": "part", "aliases": list(aliases)})
        write(tmp_path, "accelerators", "part", text)

    aliased("First")
    assert catalog.find("accelerators", "first") == "part"
    aliased("Second")
    assert not catalog.is_entry("accelerators", "first")
    assert catalog.find("accelerators", "second") == "part"


def test_what_does_not_change_is_made_once() -> None:
    cluster = sm.cluster("dgx_h100", nodes=8)
    assert sm.model("llama3_70b") is sm.model("llama3_70b")
    assert resolved_stack("plain") is resolved_stack("plain")
    catalog.forget()
    assert sm.cluster("dgx_h100", nodes=8) == cluster


def test_one_function_remembers_by_its_arguments() -> None:
    asked = []

    @catalog.kept(2)
    def doubled(number: int) -> int:
        asked.append(number)
        return 2 * number

    assert [doubled(n) for n in (1, 1, 2)] == [2, 2, 4]
    assert asked == [1, 2]
    catalog.forget()
    assert doubled(1) == 2
    assert asked == [1, 2, 1]


def test_a_folder_of_entries_may_start_with_the_home_and_is_named_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SCALEMODEL_CATALOG_PATH", os.pathsep.join(["~/mine", "~/other"]))
    table = {**catalog.load("models", "llama3_8b"), "name": "my_model", "aliases": []}
    write(tmp_path / "mine", "models", "my_model", toml_text(table))
    assert sm.model("my_model").parameters == sm.model("llama3_8b").parameters
    missing = re.escape(f"SCALEMODEL_CATALOG_PATH: no folder {tmp_path / 'other'}")
    with pytest.raises(sm.ScaleModelError, match=f"{missing}$"):
        sm.model("my_modle")


FORMER_ENGINE_KEYS = {
    "max_batched_tokens": "most_tokens",
    "max_running_sequences": "most_sequences",
    "chunked_prefill": "splits_prompts",
    "mixed_batches": "mixes_phases",
}
FORMER_KERNEL_KEYS = {
    "max_splits": "most_splits",
    "max_heads": "most_heads",
    "min_group": "least_group",
    "max_group": "most_group",
}


def with_keys(table: Any, names: Mapping[str, str]) -> Any:
    """A table of the catalogue, and those inside it, with keys by other names."""
    if not isinstance(table, Mapping):
        return table
    return {names.get(key, key): with_keys(cell, names) for key, cell in table.items()}


def test_entries_with_keys_by_former_names_mean_what_they_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped, decode = engine("sglang_2025"), AttentionKernels("B200").choose("decode").constants
    for kind, name, names in (
        ("engines", "sglang_2025", FORMER_ENGINE_KEYS),
        ("kernels", "b200_attention", FORMER_KERNEL_KEYS),
    ):
        table = with_keys(catalog.load(kind, name), names)
        assert set(names.values()) <= set(re.findall(r"\w+", toml_text(table)))
        write(tmp_path, kind, name, toml_text(table))
    monkeypatch.setenv("SCALEMODEL_CATALOG_PATH", str(tmp_path))
    assert engine("sglang_2025") == shipped
    assert not shipped.mixed_batches
    assert AttentionKernels("B200").choose("decode").constants == decode


def test_the_key_that_an_entry_gives_by_its_former_name_counts_over_its_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'name = "mine"\ntitle = "mine"\nbase = "vllm_v1"\n[engine]\nmost_tokens = 1000\n'
    write(tmp_path, "engines", "mine", text)
    monkeypatch.setenv("SCALEMODEL_CATALOG_PATH", str(tmp_path))
    assert engine("mine") == engine("vllm_v1").replace(max_batched_tokens=1000)


def changed(change: Callable[[Any], object]) -> str:
    """What is said to those who change an entry of the catalogue."""
    with pytest.raises(TypeError, match="do not change") as refused:
        change(catalog.load("accelerators", "h100_sxm_80"))
    return str(refused.value)


def test_answers_do_not_move_with_what_callers_do_to_an_entry() -> None:
    before_s = step_time_s()
    assert "h100_sxm_80.gemm:" in changed(lambda entry: entry["gemm"].update(x=1))
    assert "h100_sxm_80.aliases:" in changed(lambda entry: entry["aliases"].append("mine"))
    changed(lambda entry: entry.pop("compute"))
    changed(lambda entry: entry["compute"].setdefault("bf16", "1 TFLOP/s"))
    changed(lambda entry: entry["aliases"].sort())
    catalog.forget()
    assert step_time_s() == before_s


def test_a_deep_copy_of_an_entry_is_ones_own() -> None:
    entry = catalog.load("accelerators", "h100_sxm_80")
    own = copy.deepcopy(entry)
    assert own == entry
    assert type(own["compute"]) is dict
    assert type(own["aliases"]) is list
    own["compute"]["bf16"]["value"] = "1 TFLOP/s"
    own["aliases"].clear()
    assert catalog.load("accelerators", "h100_sxm_80") == entry != own


def test_entries_travel_between_processes() -> None:
    entry = catalog.load("accelerators", "h100_sxm_80")
    travelled = pickle.loads(pickle.dumps(entry))
    assert travelled == entry
    assert type(travelled["aliases"]) is type(entry["aliases"])
    assert travelled["compute"].where == entry["compute"].where
