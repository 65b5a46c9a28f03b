"""One machine from nothing published: its operators measured, its catalogue entries made of them.

`measure_machine` writes tables of one core or GPU and of exchanges between its ranks;
`calibrate_machine` makes an accelerator and an interconnect of them. No step is among the tables.
"""

from __future__ import annotations

import csv
import importlib
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.units import parse_quantity
from scalemodel.calibration import Calibration, calibrate, cores, measure, ranks, shapes
from scalemodel.calibration.entry import check_name, toml_text, write_entries
from scalemodel.calibration.host import host_launch_s, host_rows
from scalemodel.calibration.kinds import FAMILIES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    import pandas as pd

#: Tables of a machine, in the order in which they are measured.
TABLES = ("copies", "gemm", "elementwise", "training_attention", "host", "collectives")
_PASSES = ("forward", "backward")
_COPIED_BYTES = 64 * 2**20
_SEQUENCES = (64, 96, 128, 192, 256, 384, 512, 768)
_MOST_BYTES = 32 * 2**20  # of an exchange
_PRIOR_LINKS = "pcie3"
_CPU_TILE = 64


def _torch(device: str) -> Any:
    if device not in ("cpu", "cuda"):
        raise ScaleModelError(f"device={device!r}: must be cpu or cuda")
    if device == "cuda":
        return measure._torch()
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise ScaleModelError(
            "torch is not installed, and measuring runs kernels with it: "
            "pip install 'scalemodel[torch]'",
            code="missing_extra",
        ) from None


def _cpu_name() -> str:
    """What the system calls its processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"one core of {named[0]}" if named else platform.machine()


def _memory_bytes(torch: Any, device: str, count: int) -> float:
    """Memory of one rank."""
    if device == "cuda":
        return float(torch.cuda.get_device_properties(0).total_memory)
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) / count


def attention_shapes(count: int, *, seed: int = 0) -> list[tuple[str, int, int, int, int]]:
    """Causal attention of training (pass, batch, tokens, heads, head_dim), passes in turn.

    Sequences are powers of two, as runs have them, and half as long again: strides that are powers
    of two collide in caches.
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    return [
        (
            _PASSES[index % 2],
            int(rng.integers(1, 5)),
            int(rng.choice(_SEQUENCES)),
            int(rng.choice([2, 4, 8])),
            int(rng.choice([32, 64])),
        )
        for index in range(count)
    ]


def _attention_row(bench: measure.Bench, shape: tuple[str, int, int, int, int]) -> dict[str, Any]:
    which, batch, tokens, heads, width = shape
    torch = bench.torch
    operands = [bench.tensor(batch, heads, tokens, width).requires_grad_() for _ in range(3)]
    forward = partial(torch.nn.functional.scaled_dot_product_attention, *operands, is_causal=True)
    call: Callable[[], object] = forward
    if which == "backward":
        out = forward()
        call = partial(torch.autograd.grad, out, operands, torch.ones_like(out), retain_graph=True)
    numbers = {"batch": batch, "tokens": tokens, "heads": heads, "head_dim": width}
    return {"pass": which, **numbers, "causal": 1, "time_us": 1e6 * bench.time_s(call)}


def _copy_row(bench: measure.Bench, _: object) -> dict[str, Any]:
    here = bench.tensor(_COPIED_BYTES // 4)
    there = bench.torch.empty_like(here)
    time_s = bench.time_s(partial(there.copy_, here))
    return {"bytes": _COPIED_BYTES, "time_us": 1e6 * time_s}


def _rows(kind: str, bench: measure.Bench, count: int, seed: int) -> Iterator[dict[str, Any]]:
    small = isinstance(bench, cores.CoreBench)
    gemms = cores.gemm_shapes if small else shapes.gemm_shapes
    matrices = cores.elementwise_shapes if small else shapes.elementwise_shapes
    ways: dict[str, tuple[Callable[..., list[Any]], Callable[..., dict[str, Any]]]] = {
        "copies": (lambda count, seed: [None], _copy_row),
        "gemm": (gemms, measure.gemm_row),
        "elementwise": (matrices, measure.elementwise_row),
        "training_attention": (attention_shapes, _attention_row),
    }
    draw, row_of = ways[kind]
    for shape in draw(count, seed=seed):
        yield row_of(bench, shape)


def measure_machine(
    folder: str | os.PathLike[str],
    *,
    device: str = "cpu",
    count: int = 2,
    samples: int = 40,
    seed: int = 0,
    repeats: int = 20,
) -> list[Path]:
    """Measure the operators of one rank, and exchanges between ranks, into tables of a folder.

    Parameters
    ----------
    folder : path
        Gets ``machine.toml`` and one CSV for each of `TABLES`; that of the host on a CPU alone.
    device : str
        ``"cpu"`` (a rank is one core) or ``"cuda"`` (a rank is one GPU).
    count : int
        Ranks of the exchanges; with 1 nothing is exchanged.
    samples : int
        Shapes of each kind; of exchanges a quarter as many sizes.
    seed, repeats : int
        Of the shapes; timings of each.

    Raises
    ------
    ScaleModelError : no torch, no such device, a rank that fails, or a file that cannot be written.
    """
    torch = _torch(device)
    dtype = "float32"
    if device == "cpu":
        torch.set_num_threads(1)
        bench: measure.Bench = cores.CoreBench(torch, _cpu_name(), dtype, repeats)
    else:
        bench = measure.Bench(torch, device, dtype, repeats)
    source = f"scalemodel measure: torch {torch.__version__}, seed {seed}, {repeats} repeats"
    common = {"gpu": bench.gpu, "dtype": dtype, "source": source}
    where = Path(folder)
    where.mkdir(parents=True, exist_ok=True)
    facts = {
        "label": bench.gpu,
        "device": device,
        "ranks": count,
        "memory_bytes": _memory_bytes(torch, device, count),
        "source": source,
    }
    paths = write_entries(where, {"machine.toml": toml_text(facts)})
    for kind in TABLES[:-2]:
        rows = [{**common, **row} for row in _rows(kind, bench, samples, seed)]
        paths.append(_written(where / f"{kind}.csv", rows))
    if device == "cpu":
        rows = [{**common, **row} for row in host_rows(torch, repeats)]
        paths.append(_written(where / "host.csv", rows))
    if count > 1:
        most = max(2, samples // 4)
        sizes = [
            round(4096 * (_MOST_BYTES / 4096) ** (i / (most - 1))) // 64 * 64 for i in range(most)
        ]
        job = {"do": "exchanges", "device": device, "repeats": repeats, "sizes": sizes}
        place = {"nodes": 1, "gpus": count, "gpus_per_node": count}
        rows = [{**common, **place, **row} for row in ranks.run(job, count)]
        paths.append(_written(where / "collectives.csv", rows))
    return paths


def _written(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


# ---------------------------------------------------------------------------------- calibration
class Machine:
    """Entries of a measured machine and how well their constants describe it.

    Attributes
    ----------
    name : str
    ranks : int
    calibrations : list of Calibration
    errors : DataFrame
        One row per group of operators: samples and errors, of fitted and of held-out samples.
    entries : dict of str to str
        Catalogue path -> TOML text.
    """

    def __init__(
        self, name: str, ranks: int, calibrations: list[Calibration], entries: dict[str, str]
    ) -> None:
        import pandas as pd

        self.name, self.ranks = name, ranks
        self.calibrations, self.entries = calibrations, entries
        self.errors: pd.DataFrame = pd.concat(
            [found.errors for found in calibrations], ignore_index=True
        )

    def write(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write the entries below `folder`, a directory for ``SCALEMODEL_CATALOG_PATH``."""
        return write_entries(folder, self.entries)

    def text(self) -> str:
        """Tables of constants for a terminal."""
        return "\n\n".join(found.text() for found in self.calibrations)


def _read(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    except OSError as error:
        raise ScaleModelError(
            f"{path}: cannot be read ({error.strerror}); scalemodel measure --all writes it",
            code="unreadable_file",
        ) from None


def _first_entry(name: str, folder: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What the tables show without a fit: peaks as the best rates seen, and where fits begin."""
    source = f"{facts['source']}: the best rate seen"

    def best(path: str, work: Callable[[dict[str, str]], float]) -> float:
        return 1.001 * max(work(row) / float(row["time_us"]) for row in _read(folder / path))

    peak = best("gemm.csv", lambda row: 2e6 * float(row["m"]) * float(row["n"]) * float(row["k"]))
    memory = best("copies.csv", lambda row: 2e6 * float(row["bytes"]))
    # Matrices that a cache holds move faster than copies of memory: the higher rate bounds both.
    moved = {"add": 12e6, "mul": 12e6}
    memory = max(
        memory,
        best(
            "elementwise.csv",
            lambda row: moved.get(row["op"], 8e6) * float(row["rows"]) * float(row["cols"]),
        ),
    )
    rate = f"{memory:.6g} B/s"
    usual = "where the fit begins"
    return {
        "name": name,
        "title": str(facts["label"]),
        "vendor": "measured here",
        "compute": {"fp32": {"value": f"{peak:.6g} FLOP/s", "source": source}},
        "memory": {
            "capacity": {"value": f"{facts['memory_bytes']:.6g} B", "source": "of the system"},
            "bandwidth": {"value": rate, "source": source},
        },
        "scale_up": {
            "class": _PRIOR_LINKS,
            "bandwidth": {"value": rate, "source": "ranks exchange through the same memory"},
            "domain": int(facts["ranks"]),
        },
        "host": {"bandwidth": {"value": rate, "source": "the same memory"}},
        "power": {"tdp": "100 W", "idle": "10 W", "source": "assumed: not measured"},
        "gemm": {
            "form": "roofline",
            "source": usual,
            "roofline": {"compute_fraction": 0.8, "memory_fraction": 0.5, "launch": "10 us"},
        },
        "attention": {
            **{f"flash{i}_{which}": 0.3 for i in (2, 3) for which in _PASSES},
            **_tile(facts),
            "launch": "20 us",
            "source": usual,
        },
        "elementwise": {
            **{f"{family}_fraction": 0.5 for family in FAMILIES},
            "launch": "10 us",
            "source": usual,
        },
    }


def _tile(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Queries that torch's attention masks together on a CPU, from 192 to 767 of them."""
    if facts["device"] != "cpu":
        return {}
    source = "pytorch/pytorch, aten/src/ATen/native/cpu/FlashAttentionKernel.cpp"
    return {"tile": {"value": _CPU_TILE, "source": source}}


def _sent(rows: list[dict[str, str]], bandwidth: float) -> dict[str, Any]:
    """Latency of the smallest message, and the rate of the largest over that of the links."""
    messages = sorted((float(row["bytes"]), float(row["time_us"])) for row in rows)
    (_, latency_us), (most_bytes, most_us) = messages[0], messages[-1]
    share = most_bytes / (1e-6 * most_us) / bandwidth
    return {
        "latency": f"{latency_us:.4g} us",
        "bandwidth_fraction": float(f"{min(1.0, share):.4g}"),
        "source": "smallest and largest message between two ranks, scalemodel measure",
    }


def _stack(
    name: str, facts: Mapping[str, Any], entry: Mapping[str, Any], folder: Path
) -> dict[str, Any]:
    """How plain eager steps of torch run on the machine; nothing in it is fitted to steps."""
    cpu = facts["device"] == "cpu"
    cores = "no core is left over for exchanges" if cpu else "default of DDP and FSDP"
    cells = {
        "gemm_efficiency": (1.0, "as in a tight loop"),
        "memory_efficiency": (1.0, "as in a tight loop"),
        "host_computes": (cpu, "cores run what they launch" if cpu else "GPUs run beside the CPU"),
        "softmax_loss": (True, "log-softmax and likelihood are kernels of their own"),
        "overlap_grad_reduce": (not cpu, cores),
        "overlap_param_gather": (not cpu, cores),
        "overlap_p2p": (False, "a stage waits for what it receives"),
    }
    stack = {key: {"value": value, "source": why} for key, (value, why) in cells.items()}
    launch, source = "20 us", "assumed: not measured"
    if cpu:
        constants = {key: value for key, (value, _) in cells.items()}
        rows = _read(folder / "host.csv")
        launch = f"{1e6 * host_launch_s(entry, constants, rows):.4g} us"
        source = "layers of a few numbers in host.csv, beyond the timed launches of their kernels"
    stack["host_launch"] = {"value": launch, "source": source}
    return {"name": name, "title": f"Plain torch on {name}", "frameworks": [], "stack": stack}


def calibrate_machine(folder: str | os.PathLike[str], *, name: str = "here") -> Machine:
    """Catalogue entries of a machine from the tables that `measure_machine` wrote.

    Parameters
    ----------
    folder : path
    name : str
        Of the accelerator, cluster and interconnect.

    Raises
    ------
    ScaleModelError : a table is missing or cannot be calibrated with.
    """
    check_name(name)
    where = Path(folder)
    facts = catalog.read_toml(where / "machine.toml")
    entry = _first_entry(name, where, facts)
    found = []
    for kind in ("gemm", "elementwise", "training_attention"):
        calibration = calibrate(kind, where / f"{kind}.csv", accelerator=entry, name=name)
        (text,) = calibration.entries.values()
        entry = dict(tomllib.loads(text))
        found.append(calibration)
    entries = {f"stacks/{name}.toml": toml_text(_stack(name, facts, entry, where))}
    links = where / "collectives.csv"
    if links.exists():
        cluster = {"accelerator": entry, "node": {"accelerators": int(facts["ranks"])}}
        calibration = calibrate("collectives", links, cluster=cluster, name=f"{name}_links")
        (text,) = calibration.entries.values()
        interconnect = dict(tomllib.loads(text))
        rate = parse_quantity(entry["memory"]["bandwidth"]["value"], "bytes_per_s", "bandwidth")
        messages = [row for row in _read(links) if row["op"] == "p2p"]
        interconnect["p2p"] = _sent(messages, rate)
        entries[f"interconnects/{name}_links.toml"] = toml_text(interconnect)
        entry["scale_up"]["class"] = f"{name}_links"
        found.append(calibration)
    entries[f"accelerators/{name}.toml"] = toml_text(entry)
    entries[f"clusters/{name}.toml"] = toml_text(
        {
            "name": name,
            "title": str(facts["label"]),
            "accelerator": name,
            "nodes": 1,
            "node": {"accelerators": int(facts["ranks"])},
        }
    )
    return Machine(name, int(facts["ranks"]), found, entries)
