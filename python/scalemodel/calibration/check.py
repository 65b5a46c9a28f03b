"""Steps of small transformers on this machine, beside what its calibrated operators predict."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.calibration import ranks
from scalemodel.calibration.machine import _torch
from scalemodel.calibration.small_models import MODELS, architecture
from scalemodel.estimator.estimate import estimate
from scalemodel.estimator.knobs import Strategy
from scalemodel.resolve.tasks import Training
from scalemodel.validation.errors import columns, percent

if TYPE_CHECKING:
    import pandas as pd

#: What a strategy of two ranks is called, and its knobs.
WAYS: dict[str, dict[str, Any]] = {
    "one": {"sharding": "ddp"},
    "ddp": {"sharding": "ddp"},
    "fsdp": {"sharding": "zero3"},
    "tp": {"tp": 2, "sharding": "ddp", "sequence_parallel": False},
    "pp": {"pp": 2, "sharding": "ddp"},
}
_MICRO_BATCHES = 4


@dataclass(frozen=True)
class Configuration:
    """A small training run: which model, how it is spread, and its batch of sequences a rank."""

    model: str
    way: str
    sequence: int
    batch: int

    @property
    def ranks(self) -> int:
        """Processes of the run."""
        return 1 if self.way == "one" else 2

    @property
    def micro_batches(self) -> int:
        """Parts of the batch that follow each other."""
        return _MICRO_BATCHES if self.way == "pp" else 1

    @property
    def strategy(self) -> Any:
        """The strategy that the run is predicted with."""
        return Strategy(micro_batch=self.batch // self.micro_batches, **WAYS[self.way])

    @property
    def global_batch(self) -> int:
        """Sequences of a step."""
        return self.batch * (2 if self.way in ("ddp", "fsdp") else 1)


#: Two models, one and two ranks, data, fully sharded, tensor and pipeline parallelism.
CONFIGURATIONS = tuple(
    Configuration(model, way, sequence, 512 // sequence * (_MICRO_BATCHES if way == "pp" else 1))
    for model, way, sequence in (
        ("gpt", "one", 128),
        ("gpt", "one", 512),
        ("moe", "one", 128),
        ("moe", "one", 512),
        ("gpt", "ddp", 128),
        ("moe", "ddp", 512),
        ("gpt", "fsdp", 128),
        ("gpt", "fsdp", 512),
        ("gpt", "tp", 128),
        ("gpt", "tp", 512),
        ("gpt", "pp", 128),
        ("gpt", "pp", 512),
    )
)


@contextmanager
def catalogue_of(folder: str | os.PathLike[str]) -> Iterator[None]:
    """The catalogue with the entries of a calibrated machine in front."""
    before = os.environ.get("SCALEMODEL_CATALOG_PATH")
    own = str(Path(folder) / "catalog")
    os.environ["SCALEMODEL_CATALOG_PATH"] = os.pathsep.join(filter(None, (own, before)))
    try:
        yield
    finally:
        if before is None:
            del os.environ["SCALEMODEL_CATALOG_PATH"]
        else:
            os.environ["SCALEMODEL_CATALOG_PATH"] = before


def predicted(configuration: Configuration, machine: str) -> tuple[float, float, float]:
    """Seconds of a step, and the ends of their interval, on the machine's catalogue entries."""
    found = estimate(
        architecture(configuration.model, MODELS[configuration.model]),
        resolve.cluster(machine, accelerators=configuration.ranks),
        Training(
            global_batch=configuration.global_batch,
            sequence=configuration.sequence,
            precision="fp32",
            master_bytes=0,
        ),
        configuration.strategy,
        stack=machine,
    )
    interval = found.interval()
    if interval is None:
        raise ScaleModelError(f"{configuration}: {found.reason}", code="illegal_strategy")
    return found.step_time_s, float(interval.low_s), float(interval.high_s)


@dataclass(frozen=True)
class Check:
    """Predicted against measured steps. Made by `check_machine`.

    Attributes
    ----------
    table : DataFrame
        One row per configuration: model, way, ranks, sequence, predicted_s, low_s, high_s,
        measured_s (fastest step), median_s, processor_s (what the busiest rank computed and
        copied in a step, without waiting), error_fraction, inside (of the interval).
    """

    table: pd.DataFrame = field(compare=False)

    @property
    def mean_error_fraction(self) -> float:
        """Mean of the absolute errors."""
        return float(self.table["error_fraction"].abs().mean())

    @property
    def largest_error_fraction(self) -> float:
        """Largest of the absolute errors."""
        return float(self.table["error_fraction"].abs().max())

    def text(self) -> str:
        """A table for a terminal."""
        shown = [
            [
                *(str(row[key]) for key in ("model", "way", "ranks", "sequence")),
                f"{1e3 * row['predicted_s']:.1f}",
                f"{1e3 * row['low_s']:.1f}-{1e3 * row['high_s']:.1f}",
                f"{1e3 * row['measured_s']:.1f}",
                f"{1e3 * row['median_s']:.1f}",
                f"{1e3 * row['processor_s']:.1f}",
                percent(row["error_fraction"]),
            ]
            for row in self.table.to_dict("records")
        ]
        titles = ("model", "way", "ranks", "sequence", "predicted ms", "interval", "fastest ms")
        lines = columns((*titles, "median ms", "processor ms", "error %"), shown, texts=2)
        lines += [
            "",
            f"mean error {percent(self.mean_error_fraction)} %, largest "
            f"{percent(self.largest_error_fraction)} %, "
            f"{int(self.table['inside'].sum())} of {len(self.table)} inside their interval",
        ]
        return "\n".join(lines)


def check_machine(
    folder: str | os.PathLike[str],
    *,
    configurations: Sequence[Configuration] = CONFIGURATIONS,
    steps: int = 20,
) -> Check:
    """Train small transformers on this machine and compare their steps with predictions.

    Parameters
    ----------
    folder : path
        What `measure_machine` and `calibrate_machine` filled; its entries lie in ``catalog``.
    configurations : sequence of Configuration
        Those of more ranks than the machine was measured with are left out.
    steps : int
        Timed steps of each; the fastest counts, as the fastest call of an operator did.

    Raises
    ------
    ScaleModelError : the machine is not calibrated, torch is missing, or a rank fails.
    """
    import pandas as pd

    where = Path(folder)
    facts = catalog.read_toml(where / "machine.toml")
    entries = sorted((where / "catalog" / "accelerators").glob("*.toml"))
    if len(entries) != 1:
        raise ScaleModelError(
            f"{where}: holds {len(entries)} calibrated accelerators and needs one; "
            f"scalemodel calibrate {where} makes it",
            code="not_calibrated",
        )
    device, machine = str(facts["device"]), entries[0].stem
    _torch(device)
    rows = []
    with catalogue_of(where):
        for one in configurations:
            if one.ranks > int(facts["ranks"]):
                continue
            step_s, low_s, high_s = predicted(one, machine)
            job = {
                "do": "steps",
                "device": device,
                "repeats": steps,
                "model": MODELS[one.model],
                "way": one.way,
                "batch": one.batch,
                "sequence": one.sequence,
                "micro_batches": one.micro_batches,
            }
            found = ranks.run(job, one.ranks)
            fastest_s = found["fastest_s"]
            rows.append(
                {
                    "model": one.model,
                    "way": one.way,
                    "ranks": one.ranks,
                    "sequence": one.sequence,
                    "predicted_s": step_s,
                    "low_s": low_s,
                    "high_s": high_s,
                    "measured_s": fastest_s,
                    "median_s": found["median_s"],
                    "processor_s": found["processor_s"],
                    "error_fraction": step_s / fastest_s - 1,
                    "inside": low_s <= fastest_s <= high_s,
                }
            )
    return Check(pd.DataFrame(rows))
