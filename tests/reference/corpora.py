"""The tables that tests compare with: those that the repository carries, or a folder of yours.

Measurements come with the package (`scalemodel.validation.published`), results of other programs
and instances of routing with the tests, in ``tests/reference/data``, where ``sources.csv`` says
whose they are. ``SCALEMODEL_DATA`` names a folder with tables of the same names to take instead.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from scalemodel.validation.published import published_table

DATA = Path(__file__).parent / "data"

#: Files of measurements, and the package's tables of them.
PUBLISHED = {
    "train_measured.csv": "training",
    "infer_measured.csv": "inference",
    "inference_power_measured.csv": "serving_power",
    "power_measured.csv": "power",
    "ops/gemm.csv": "gemm",
    "ops/gemm_consensus.csv": "gemm_median",
    "ops/attention.csv": "attention",
    "ops/mla.csv": "attention_latent",
    "ops/moe.csv": "moe",
    "ops/moe_dispatch.csv": "moe_dispatch",
    "ops/elementwise_norm.csv": "elementwise",
    "ops/embedding.csv": "elementwise_lookup",
    "ops/collectives.csv": "collectives",
}
#: Kernels of which the tests carry some rows.
SAMPLED = (
    *("linear_attention", "mamba2", "sparse_attention", "msa", "mhc", "moe_fused_a2a"),
    "encoder_attention",
)


def given() -> Path | None:
    """The folder that the environment names."""
    name = os.environ.get("SCALEMODEL_DATA")
    return Path(name).resolve() if name else None


def unzipped(name: str) -> str:
    """Text of a compressed file of the tests' own data."""
    return gzip.decompress((DATA / name).read_bytes()).decode("utf-8")


def few_runs(path: Path, each: int = 5) -> Path:
    """Write the first training runs of every source, framework and accelerator to a file."""
    table = published_table("training")
    kept: list[list[str]] = []
    counts: Counter[tuple[str, ...]] = Counter()
    labels = zip(*(table.column(name) for name in ("fitted", "complete")), strict=True)
    groups = zip(*(table.column(name) for name in ("source", "framework", "gpu")), strict=True)
    for row, label, group in zip(table.rows, labels, groups, strict=True):
        counts[group] += label == ("yes", "yes")
        if label == ("yes", "yes") and counts[group] <= each:
            kept.append(row)
    _write(path, table.header, kept)
    return path


def _write(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def expand(folder: Path) -> None:
    """Write every table into a folder, under the names that `given` has them under."""
    (folder / "ops").mkdir(parents=True)
    for name, carried in PUBLISHED.items():
        table = published_table(carried)
        _write(folder / name, table.header, table.rows)
    for kind in SAMPLED:
        text = unzipped(f"{kind}.csv.gz")
        (folder / "ops" / f"{kind}.csv").write_text(text, encoding="utf-8")
    (folder / "madmax_reference.csv").write_text(
        unzipped("madmax.csv.gz").replace("row_id", "status,row_id", 1).replace("\n", "\nok,")[:-3],
        encoding="utf-8",
    )
    with (DATA / "vision_transformers.csv").open(newline="", encoding="utf-8") as file:
        vision = [
            [
                *("vit_validation", "TFLOPS/GPU", row["model"], row["num_gpus"]),
                *(row["global_batch"], row["local_batch"], row["tflops_per_gpu"]),
                f"TFLOPs/sample={row['tflop_per_sample']}",
            ]
            for row in csv.DictReader(file)
        ]
    labels = ("study", "metric", "model", "num_gpus", "global_batch", "local_batch")
    _write(folder / "madmax_validation.csv", (*labels, "measured", "note"), vision)
    with (DATA / "all_reduce_scan.csv").open(newline="", encoding="utf-8") as file:
        columns = ("nodes", "bytes", "busbw_GBps")
        scan = [["FAIR", *(row[name] for name in columns)] for row in csv.DictReader(file)]
    _write(folder / "collective_busbw_published.csv", ("hardware", *columns), scan)
    instances = folder / "routing_instances"
    instances.mkdir()
    for name, instance in json.loads(unzipped("routing.json.gz")).items():
        (instances / f"{name}.json").write_text(json.dumps(instance), encoding="utf-8")
