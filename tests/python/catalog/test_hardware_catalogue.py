"""Laws of the hardware catalogue, checked on the files alone, without the package."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from scalemodel import catalog
from scalemodel.resolve.accelerators import accelerator_table
from scalemodel.resolve.networks import interconnect_table

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CATALOG = Path(__file__).resolve().parents[3] / "python" / "scalemodel" / "catalog"
KINDS = ("accelerators", "clusters", "interconnects", "prices", "reference", "workloads")
FILES = [path for kind in KINDS for path in sorted((CATALOG / kind).glob("*.toml"))]

ARCHITECTURES = {
    *("pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell", "rubin"),
    *("cdna1", "cdna2", "cdna3", "cdna4", "cdna5"),
    *("gcn5", "xe_hpc", "xe2", "tpu", "gaudi", "trainium", "davinci", "musa", "mlu"),
}
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
BRANCHES = ("a1", "l1", "b1", "a2", "l2", "b2", "c")
# Identity and counts that define the entry itself and need no source.
UNSOURCED = {"year", "nodes", "date"}
BYTES = r"(?:[KMGT]i?)?B"
UNITS = re.compile(
    rf"(?P<number>\d+(?:\.\d+)?) (?P<unit>{BYTES}(?:/s)?|[KMGT]?bit/s|[GTP]?FLOP/s"
    r"|m?s|us|ns|[kM]?W|[kMG]?Hz|k?J|USD(?:/h)?)"
)


@cache
def read(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return tomllib.load(file)


@cache
def entries(kind: str) -> dict[str, dict[str, Any]]:
    return {path.stem: read(path) for path in sorted((CATALOG / kind).glob("*.toml"))}


def leaves(
    table: dict[str, Any], prefix: str = "", inherited: bool = False
) -> Iterator[tuple[str, Any, bool]]:
    """Every number or unit string as (dotted key, value, has a source)."""
    sourced = inherited or bool(str(table.get("source", "")).strip())
    for key, value in table.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and "value" in value:
            yield path, value["value"], bool(str(value.get("source", "")).strip())
        elif isinstance(value, dict):
            yield from leaves(value, f"{path}.")
        elif isinstance(value, bool) or key in UNSOURCED or isinstance(value, list):
            continue
        elif isinstance(value, (int, float)) or UNITS.fullmatch(value):
            yield path, value, sourced


def label(text: str) -> str:
    """The form in which names and aliases are compared."""
    text = re.sub(r"nvidia|amd instinct|tesla", "", text.lower())
    return re.sub(r"[\s_-]", "", text)


def teraflop_per_s(peak: dict[str, Any]) -> float:
    number, unit = peak["value"].split()
    return float(number) * {"GFLOP/s": 1e-3, "TFLOP/s": 1.0, "PFLOP/s": 1e3}[unit]


def base_units(text: str) -> float:
    match = UNITS.fullmatch(text)
    assert match is not None, text
    unit = match["unit"].removesuffix("/s").removesuffix("/h")
    prefixes = {"K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "m": 1e-3, "u": 1e-6}
    binary = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
    if unit[:2] in binary:
        return float(match["number"]) * binary[unit[:2]]
    if len(unit) > 1 and unit[0] in prefixes and unit != "bit":
        return float(match["number"]) * prefixes[unit[0]]
    return float(match["number"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
class TestEveryFile:
    def test_is_named_like_its_entry(self, path: Path) -> None:
        assert read(path)["name"] == path.stem
        assert re.fullmatch(r"[a-z][a-z0-9_]*", path.stem)

    def test_gives_every_number_a_source(self, path: Path) -> None:
        found = list(leaves(read(path)))
        assert found or {"kernels", "recipes", "layouts"} & set(read(path))
        assert not [key for key, _, sourced in found if not sourced]

    def test_writes_every_physical_value_with_a_known_unit(self, path: Path) -> None:
        for key, value, _ in leaves(read(path)):
            if isinstance(value, str):
                assert UNITS.fullmatch(value), f"{key} = {value!r}"
            else:
                assert value >= 0, f"{key} = {value!r}"

    def test_keeps_fractions_between_zero_and_one(self, path: Path) -> None:
        for key, value, _ in leaves(read(path)):
            # A short kernel may run above the sheet's clock: the fitted A100 burst is 1.07.
            top = 1.1 if key.endswith("burst_fraction") else 1.0
            if key.endswith("_fraction"):
                assert 0 < value <= top, f"{key} = {value!r}"


@pytest.mark.parametrize("kind", ["accelerators", "clusters"])
def test_labels_are_unique_over_files(kind: str) -> None:
    owner: dict[str, str] = {}
    for name, entry in entries(kind).items():
        for text in {label(text) for text in [name, *entry["aliases"]]}:
            assert text
            assert owner.setdefault(text, name) == name, f"{text!r}: {owner[text]}, {name}"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("H100", "h100_sxm_80"),
        ("NVIDIA H100 80GB HBM3", "h100_sxm_80"),
        ("H100-96GB-HBM2e", "h100_sxm_96_500w"),
        ("A100", "a100_sxm_80"),
        ("A100-40GB", "a100_sxm_40"),
        ("NVIDIA A100 80GB PCIe", "a100_pcie_80"),
        ("H200-141GB", "h200"),
        ("Tesla V100-PCIE-32GB", "v100_pcie_32"),
        ("B200-SXM", "b200"),
        ("GB300-NVL72", "gb300"),
        ("AMD Instinct MI210", "mi210"),
        ("RTX-PRO-6000-Server", "rtx_pro_6000"),
        ("Gaudi2", "gaudi2"),
    ],
)
def test_labels_of_published_tables_are_known(text: str, name: str) -> None:
    entry = entries("accelerators")[name]
    assert label(text) in {label(alias) for alias in [name, *entry["aliases"]]}


def test_the_catalogue_is_large_enough() -> None:
    assert len(entries("accelerators")) >= 25
    assert len(entries("clusters")) >= 20
    priced = {entry["accelerator"] for entry in entries("prices").values()}
    assert priced >= {"a100_sxm_80", "h100_sxm_80", "h200", "b200", "tpu_v5p"}


@pytest.mark.parametrize(("name", "entry"), entries("accelerators").items())
class TestAccelerators:
    def test_has_every_table(self, name: str, entry: dict[str, Any]) -> None:
        assert entry["architecture"] in ARCHITECTURES
        assert {"title", "vendor", "year", "aliases"} <= entry.keys()
        assert {"capacity", "bandwidth"} <= entry["memory"].keys()
        assert {"class", "bandwidth", "domain"} <= entry["scale_up"].keys()
        assert base_units(entry["power"]["idle"]["value"]) < base_units(
            entry["power"]["tdp"]["value"]
        )

    def test_narrower_numbers_are_never_slower(self, name: str, entry: dict[str, Any]) -> None:
        peaks = [
            teraflop_per_s(entry["compute"][precision])
            for precision in ("tf32", "bf16", "fp8", "fp4")
            if precision in entry["compute"]
        ]
        assert peaks == sorted(peaks)

    def test_its_interconnect_exists(self, name: str, entry: dict[str, Any]) -> None:
        assert entries("interconnects")[entry["scale_up"]["class"]]["kind"] == "scale_up"

    def test_finds_its_kernel_constants(self, name: str, entry: dict[str, Any]) -> None:
        known = entries("accelerators")
        donor = known[entry["kernels"]] if "kernels" in entry else {}
        assert "kernels" not in donor, "constants are borrowed once, not through a chain"
        for table in ("gemm", "attention", "elementwise"):
            assert table in entry or table in donor
        gemm: dict[str, Any] = entry.get("gemm") or donor["gemm"]
        assert gemm["form"] in {"tile", "roofline"}
        assert {"compute_fraction", "memory_fraction", "launch"} <= gemm["roofline"].keys()

    def test_sustained_rates_do_not_exceed_short_ones(
        self, name: str, entry: dict[str, Any]
    ) -> None:
        gemm = entry.get("gemm", {})
        for table in (gemm, gemm.get("fp8", {}), gemm.get("fp4", {})):
            if "burst_fraction" in table:
                assert table["sustained_fraction"] <= table["burst_fraction"]

    def test_newer_attention_kernels_are_not_slower(self, name: str, entry: dict[str, Any]) -> None:
        rates = {key: leaf["value"] for key, leaf in entry.get("attention", {}).items()}
        for phase in ("forward", "backward"):
            if rates:
                assert rates[f"flash3_{phase}"] >= rates[f"flash2_{phase}"]


@pytest.mark.parametrize(("name", "entry"), entries("interconnects").items())
def test_interconnects_are_complete(name: str, entry: dict[str, Any]) -> None:
    entry = interconnect_table(name)
    assert {"latency", "bandwidth_fraction", "source"} == entry["p2p"].keys()
    if entry["kind"] == "scale_up":
        for operation in OPERATIONS:
            branches = entry[operation].keys() - {"own_share", "host_share"}
            assert {*BRANCHES, "source"} == branches
            assert 0 < entry[operation]["b1"] < 1
            assert 0 < entry[operation]["b2"] < 1
            assert 0 <= entry[operation].get("own_share", 0) <= 1
        switch = entry.get("in_switch", {"bandwidth_fraction": 0.5})
        assert 0 < switch["bandwidth_fraction"] < 1
        for kernel in entry.get("custom_all_reduce", ()):
            assert kernel.keys() >= {"kernel", "version", *BRANCHES, "source"} - {"c"}
            assert ("host_floor" in kernel) == kernel["kernel"].endswith("_eager")
    else:
        assert entry["kind"] == "fabric"
        assert entry["latency_factor"]["value"] >= 1
        for hop in ("ring_hop_ll128", "ring_hop_simple", "tree_hop_ll128", "tree_hop_simple"):
            assert base_units(entry[hop]["value"]) > 0


@pytest.mark.parametrize(("name", "entry"), entries("clusters").items())
class TestClusters:
    def test_refers_to_what_exists(self, name: str, entry: dict[str, Any]) -> None:
        interconnects = entries("interconnects")
        assert entry["accelerator"] in entries("accelerators")
        assert interconnects[entry["scale_up"]["class"]]["kind"] == "scale_up"
        assert interconnects[entry["fabric"]["class"]]["kind"] == "fabric"

    def test_agrees_with_its_accelerator(self, name: str, entry: dict[str, Any]) -> None:
        accelerator = entries("accelerators")[entry["accelerator"]]
        assert entry["scale_up"]["class"] == accelerator["scale_up"]["class"]
        assert base_units(entry["scale_up"]["bandwidth"]["value"]) <= base_units(
            accelerator["scale_up"]["bandwidth"]["value"]
        )

    def test_nodes_divide_the_scale_up_domain(self, name: str, entry: dict[str, Any]) -> None:
        each, domain = entry["node"]["accelerators"]["value"], entry["scale_up"]["domain"]["value"]
        assert domain % each == 0
        assert entry["nodes"] in {1, domain // each}  # of a rack all that it holds

    def test_wastes_at_least_nothing(self, name: str, entry: dict[str, Any]) -> None:
        assert entry["fabric"]["oversubscription"]["value"] >= 1
        assert 1 <= entry["power"]["pue"]["value"] < 2


@pytest.mark.parametrize(("name", "entry"), entries("prices").items())
def test_prices_are_dated_and_known(name: str, entry: dict[str, Any]) -> None:
    assert entry["accelerator"] in entries("accelerators")
    assert entry["type"] in {"on_demand", "spot", "reserved", "neocloud"}
    assert re.fullmatch(r"20\d\d(-(0[1-9]|1[0-2]))?", entry["date"])
    assert entry["usd_per_accelerator_hour"]["value"].endswith(" USD/h")
    assert 0.1 < base_units(entry["usd_per_accelerator_hour"]["value"]) < 20


def test_reference_items_have_value_unit_and_source() -> None:
    for name, entry in entries("reference").items():
        for table in entry.values():
            for key, item in table.items() if isinstance(table, dict) else ():
                assert {"value", "unit", "source"} == item.keys(), f"{name}: {key}"


def test_what_storage_does_has_a_source_and_numbers_a_unit() -> None:
    entry = entries("storage")["cache_tiers"]
    used = {
        tier
        for table in entry.values()
        if isinstance(table, dict)
        for tier in table.get("tiers", ())
    }
    assert used == set(entry["tier"])
    for table in (*entry["tier"].values(), *entry["weights"].values(), entry["start_up"]):
        for key, item in table.items():
            if not isinstance(item, dict):
                continue
            assert str(item["source"]).strip(), key
            if UNITS.fullmatch(str(item["value"])):
                assert item["value"].split()[1].lstrip("KMGTimu") == item["unit"], key


def test_tiers_of_checkpoints_have_sources_and_known_reads() -> None:
    storage = entries("storage")
    for table in (
        *storage["checkpoint_tiers"]["tier"].values(),
        storage["checkpoint_tiers"]["write"],
    ):
        assert table.get("reads") in {None, *storage["cache_tiers"]["weights"]}
        for item in table.values():
            assert not isinstance(item, dict) or str(item["source"]).strip()


@pytest.mark.parametrize("name, kernel", [("fp8", "fp8"), ("fp4", "nvfp4")])
def test_the_latency_of_narrow_steps_is_the_mean_of_timed_kernels(name: str, kernel: str) -> None:
    # Parts of data centres alone: the workstation's kernels of a format are not its 16-bit ones.
    timed = {
        part: catalog.load("kernels", f"{part}_gemm")[kernel]["sglang"]["tau_cycles"]
        for part in ("h100_sxm_80", "h200", "b200", "b300", "gb200", "gb300")
        if kernel in catalog.load("kernels", f"{part}_gemm")
    }
    wide = {part: accelerator_table(part)["gemm"]["tau_cycles"] for part in timed}
    shares = [timed[part] / wide[part] for part in timed]
    taken = catalog.load("reference", "narrow_gemm")["step_latency"][name]["value"]
    assert taken == pytest.approx(sum(shares) / len(shares), abs=0.005)
