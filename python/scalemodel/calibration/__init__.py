"""Refitting the few constants of a machine to a small table of its own measurements."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments
from scalemodel.calibration import kinds
from scalemodel.calibration.attention import attention
from scalemodel.calibration.entry import check_name, toml_text, write_entries
from scalemodel.calibration.kinds import Constant, Fit, Target
from scalemodel.calibration.samples import FITTED
from scalemodel.calibration.work_kernels import WorkFit, entries, fit_table
from scalemodel.validation.errors import columns, percent, summarised
from scalemodel.validation.operators.mixers import CALLS
from scalemodel.validation.rows import Table, read_table

if TYPE_CHECKING:
    import pandas as pd

    import scalemodel._core as _core

__all__ = ["KINDS", "WORK_KINDS", "Calibration", "calibrate"]

KINDS = ("gemm", "attention", "elementwise", "training_attention", "collectives")
#: Kernels by what they work on: a table holds several, and each gets an entry of its own.
WORK_KINDS = tuple(CALLS)
_MOST_ROWS = 600  # of a kernel; more do not change its constants
_MISFIT = 0.3  # held-out error beyond which a calibration is no model of its machine


@dataclass(frozen=True)
class Calibration:
    """What a calibration found. Made by `calibrate`.

    Attributes
    ----------
    kind : str
    table : DataFrame
        One row per constant: group, constant (key in the catalogue), unit, value, relative_error
        (standard error of the logarithm), prior, state (``fitted``; ``kept`` where the samples
        cannot tell, so that the prior stays; ``at_bound`` at an end of the legal range).
    samples : DataFrame
        The rows of the file with predicted_time_us, held_out_time_us (predicted with the sample's
        fold left out) and state (``fitted``, or why the row was set aside).
    errors : DataFrame
        One row per group: samples, folds, mape_fraction, held_out_mape_fraction, bias_fraction,
        kept (constants the samples could not tell).
    entries : dict
        Catalogue path such as ``accelerators/h100_sxm_80_calibrated.toml`` to TOML text.
    """

    kind: str
    table: pd.DataFrame = field(compare=False)
    samples: pd.DataFrame = field(compare=False)
    errors: pd.DataFrame = field(compare=False)
    entries: dict[str, str]

    @property
    def mape_fraction(self) -> float:
        """Mean absolute relative error of the fitted samples."""
        return _weighted(self.errors, "mape_fraction")

    @property
    def held_out_mape_fraction(self) -> float:
        """The same, each sample predicted without its fold."""
        return _weighted(self.errors, "held_out_mape_fraction")

    def write(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write the entries below `folder`, a directory for ``SCALEMODEL_CATALOG_PATH``.

        Raises
        ------
        ScaleModelError : a file cannot be written.
        """
        return write_entries(folder, self.entries)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and dicts."""
        return {
            "kind": self.kind,
            "constants": self.table.astype(object).to_dict("records"),
            "errors": self.errors.astype(object).to_dict("records"),
            "rows": len(self.samples),
            "rows_fitted": int((self.samples["state"] == FITTED).sum()),
            "entries": self.entries,
        }

    def text(self) -> str:
        """Tables for a terminal; errors in percent."""
        constants, errors = self.table.to_dict("records"), self.errors.to_dict("records")
        cells = [
            [
                str(row["group"]),
                str(row["constant"]),
                _shown(row["value"], row["unit"]),
                percent(row["relative_error"]),
                _shown(row["prior"], row["unit"]),
                str(row["state"]),
            ]
            for row in constants
        ]
        lines = columns(("group", "constant", "value", "+- %", "prior", "state"), cells, texts=2)
        shares = ("mape_fraction", "held_out_mape_fraction", "bias_fraction")
        cells = [
            [str(row["group"]), str(row["samples"]), *(percent(row[name]) for name in shares)]
            for row in errors
        ]
        titles = ("group", "samples", "MAPE %", "held out %", "bias %")
        lines += ["", *columns(titles, cells, texts=1)]
        lines += [
            f"{row['group']}: the form does not describe these samples; trust no number of it"
            for row in errors
            if row["held_out_mape_fraction"] > _MISFIT
        ]
        aside = self.samples.loc[self.samples["state"] != FITTED, "state"].value_counts()
        if len(aside):
            cells = [[str(state), str(count)] for state, count in aside.items()]
            lines += ["", *columns(("set aside", "rows"), cells, texts=1)]
        return "\n".join(lines)


def _weighted(errors: pd.DataFrame, column: str) -> float:
    return float((errors[column] * errors["samples"]).sum() / errors["samples"].sum())


def _shown(value: float, unit: str) -> str:
    return f"{1e6 * value:.4g} us" if unit == "s" else f"{value:.4g}"


def _toml_value(value: float, unit: str) -> str | float:
    return f"{1e6 * value:.6g} us" if unit == "s" else float(f"{value:.6g}")


def _state(found: _core.FittedField) -> str:
    if found.frozen:
        return "kept"
    return "at_bound" if found.at_bound else FITTED


def _constant_rows(fit: Fit) -> list[dict[str, Any]]:
    rows = []
    for constant, found in zip(fit.constants, fit.fields, strict=True):
        rows.append(
            {
                "group": fit.group.name,
                "constant": ".".join((*fit.path, constant.key)),
                "unit": constant.unit,
                "value": found.value / constant.unit_value,
                "relative_error": found.relative_error,
                "prior": found.prior / constant.unit_value,
                "state": _state(found),
            }
        )
    return rows


def _error_row(fit: Fit, folds: int) -> dict[str, Any]:
    measured = fit.group.time_s
    fitted = summarised((fit.predicted_s / measured - 1).tolist())
    held_out = fit.held_out_s if fit.held_out_s.size else fit.predicted_s
    return {
        "group": fit.group.name,
        "samples": len(measured),
        "folds": folds,
        "mape_fraction": fitted.mape_fraction,
        "held_out_mape_fraction": summarised((held_out / measured - 1).tolist()).mape_fraction,
        "bias_fraction": fitted.bias_fraction,
        "kept": sum(bool(found.frozen) for found in fit.fields),
    }


def _source(constant: Constant, found: _core.FittedField, fit: Fit, file: str, prior: str) -> str:
    count = len(fit.group.samples)
    if found.frozen:
        return f"kept from {prior}: {count} samples of {file} do not determine it"
    end = ", at an end of its range" if found.at_bound else ""
    return (
        f"calibrated on {count} samples of {file}, standard error "
        f"{100 * found.relative_error:.1f} %{end}"
    )


def _entry(target: Target, name: str, file: str, folds: int) -> str:
    """The entry of a target with the fitted constants in place of its own."""
    table: dict[str, Any] = _copied(target.table)
    if name != target.name:
        table.pop("aliases", None)
        if "title" in table:
            table["title"] = f"{table['title']} ({name})"
    table = {"name": name, **{key: cell for key, cell in table.items() if key != "name"}}
    for fit in target.fits:
        inner = table
        for key in fit.path:
            inner = inner.setdefault(key, {})
        for constant, found in zip(fit.constants, fit.fields, strict=True):
            inner[constant.key] = {
                "value": _toml_value(found.value / constant.unit_value, constant.unit),
                "source": _source(constant, found, fit, file, target.name),
            }
        if fit.path:
            row = _error_row(fit, folds)
            inner["source"] = (
                f"calibrated on {row['samples']} samples of {file}: mean error "
                f"{percent(row['mape_fraction'])} %, held out "
                f"{percent(row['held_out_mape_fraction'])} % ({folds} folds by shape); numbers "
                f"without a source of their own as in {target.name}"
            )
    return toml_text(table)


def _copied(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _copied(cell) if isinstance(cell, Mapping) else cell for key, cell in table.items()
    }


def _sample_table(
    table: Table, states: Sequence[str], times: Iterable[tuple[int, float, float]]
) -> pd.DataFrame:
    """The rows with their state and, of those that were fitted, seconds predicted and held out."""
    import pandas as pd

    kept = table.without(("predicted_time_us", "held_out_time_us", "state"))
    frame = pd.DataFrame(kept.rows, columns=list(kept.header), dtype=object)
    predicted: list[float | None] = [None] * len(frame)
    held_out: list[float | None] = [None] * len(frame)
    for row, predicted_s, held_out_s in times:
        predicted[row], held_out[row] = 1e6 * predicted_s, 1e6 * held_out_s
    frame["predicted_time_us"] = pd.Series(predicted, dtype="float64")
    frame["held_out_time_us"] = pd.Series(held_out, dtype="float64")
    frame["state"] = pd.Series([state or FITTED for state in states], dtype=object)
    return frame


def _times(targets: Sequence[Target]) -> Iterator[tuple[int, float, float]]:
    for fit in (fit for target in targets for fit in target.fits):
        outside = fit.held_out_s if fit.held_out_s.size else fit.predicted_s
        for i, sample in enumerate(fit.group.samples):
            yield sample.row, float(fit.predicted_s[i]), float(outside[i])


def _work_errors(fit: WorkFit, folds: int) -> dict[str, Any]:
    errors, held_out = (
        summarised((times / fit.measured_s - 1).tolist())
        for times in (fit.predicted_s, fit.held_out_s)
    )
    return {
        "group": f"{fit.accelerator} {fit.key}",
        "samples": len(fit.rows),
        "folds": folds,
        "mape_fraction": errors.mape_fraction,
        "held_out_mape_fraction": held_out.mape_fraction,
        "bias_fraction": errors.bias_fraction,
        "kept": 0,
    }


def _work_calibration(kind: str, path: str | os.PathLike[str], folds: int) -> Calibration:
    """Calibration of the kernels of a table by what they work on, each from its own rows."""
    import pandas as pd

    table = read_table(path)
    fits, states = fit_table(kind, table, folds, _MOST_ROWS)
    if not fits:
        found = ", ".join(sorted(set(states))[:4])
        raise ScaleModelError(
            f"table: holds no kernel to calibrate {kind!r} with ({found})", code="no_samples"
        )
    times = (
        (row, float(fit.predicted_s[at]), float(fit.held_out_s[at]))
        for fit in fits
        for at, row in enumerate(fit.rows)
    )
    constants = [
        {
            "group": f"{fit.accelerator} {fit.key}",
            "constant": found.key,
            "unit": found.unit,
            "value": found.value,
            "relative_error": found.relative_error,
            "prior": found.start,
            "state": "at_bound" if found.at_bound else FITTED,
        }
        for fit in fits
        for found in fit.constants
    ]
    files = entries(fits, Path(os.fspath(path)).name)
    return Calibration(
        kind=kind,
        table=pd.DataFrame(constants),
        samples=_sample_table(table, states, times),
        errors=pd.DataFrame([_work_errors(fit, folds) for fit in fits]),
        entries={f"kernels/{name}.toml": toml_text(content) for name, content in files.items()},
    )


@named_arguments
def calibrate(
    kind: str,
    path: str | os.PathLike[str],
    *,
    accelerator: str | Mapping[str, Any] | None = None,
    cluster: str | Mapping[str, Any] | None = None,
    name: str | None = None,
    folds: int = 5,
) -> Calibration:
    r"""Refit the constants of an accelerator or an interconnect to measured times.

    A few dozen samples are enough, because only a few constants move, from the values the
    catalogue has, within the ranges physics allows; what the samples cannot see stays. Samples
    faster than the peak rate of the data sheet are set aside.

    Parameters
    ----------
    kind : str
        ``"gemm"`` (launch, tile step, burst, sustained and memory fractions of 16-bit operands;
        for fp8 and fp4 their share of these fractions), ``"attention"`` (launch, rate and tile step
        of whole prompts; launch, bandwidth and block step of one query), ``"elementwise"`` (launch
        and bandwidth fractions), ``"training_attention"`` (launch, rates forward and backward) or
        ``"collectives"`` (one scale of latencies and one of bandwidths
        inside a scale-up domain; latency and bandwidth factors between domains). Or one of
        `WORK_KINDS` (mixers, sparse attention, towers): launch, step, piece, rate and bandwidth of
        every kernel, engine, phase and format with a dozen rows, of whatever accelerators the table
        names; needs scipy (extra ``opt``).
    path : path
        CSV with the columns of ``validate``, time_us among them, of one machine: what
        ``scalemodel measure`` writes.
    accelerator : str or mapping, optional
        Entry whose data sheet and constants the fit begins from; default: what the column ``gpu``
        names. For an accelerator of your own pass its TOML, or ``{"base": "h100_sxm_80", ...}``.
    cluster : str or mapping, optional
        For collectives: the cluster they were measured on; needed for several nodes.
    name : str, optional
        Name of the new entry; default: that of the old one and ``_calibrated``. With the old name
        the entry replaces it wherever the folder it is written to is on the catalogue's path.
        Attention kernels always extend the file of their accelerator.
    folds : int
        Parts of the held-out error, from 2; shapes are never split between parts.

    Returns
    -------
    Calibration
        Constants with error bars, samples with predictions, and catalogue entries as TOML.

    Raises
    ------
    ScaleModelError : unknown kind or machine, a missing column, or no sample that can be used.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "t.csv"
    >>> lines = [f"L40S,float16,add,{2**i},8192,{5 + 2**i * 0.0668:.3f}" for i in range(6, 16)]
    >>> _ = path.write_text("gpu,dtype,op,rows,cols,time_us\n" + "\n".join(lines) + "\n")
    >>> found = calibrate("elementwise", path, name="mine").table.set_index("constant")
    >>> found.state.to_dict()
    {'elementwise.launch': 'fitted', 'elementwise.add_fraction': 'fitted',
     'elementwise.norm_fraction': 'kept', 'elementwise.softmax_fraction': 'kept'}
    >>> round(1e6 * float(found.value["elementwise.launch"]), 1)
    5.0
    """
    import pandas as pd

    if kind not in KINDS + WORK_KINDS:
        raise ScaleModelError(
            f"kind={kind!r}: must be one of {', '.join(KINDS + WORK_KINDS)}", code="unknown_kind"
        )
    if isinstance(folds, bool) or not isinstance(folds, int) or not 2 <= folds <= 1000:
        raise ScaleModelError(f"folds={folds!r}: must be a whole number from 2 to 1000")
    if name is not None:
        check_name(name)
    if cluster is not None and not isinstance(cluster, (str, Mapping)):
        raise ScaleModelError(
            f"cluster={cluster!r}: must be a catalogue name, a .toml path or a table, which say "
            "what its networks are called"
        )
    if kind == "collectives" and accelerator is not None:
        raise ScaleModelError(f"accelerator={accelerator!r}: kind {kind!r} takes cluster=")
    if kind != "collectives" and cluster is not None:
        raise ScaleModelError(f"cluster={cluster!r}: kind {kind!r} takes accelerator=")
    if kind in WORK_KINDS:
        for given, value in (("accelerator", accelerator), ("name", name)):
            if value is not None:
                raise ScaleModelError(
                    f"{given}={value!r}: kernels of kind {kind!r} are kept under the names of the "
                    "accelerators that the table has"
                )
        return _work_calibration(kind, path, folds)
    if kind == "attention" and name is not None:
        raise ScaleModelError(
            f"name={name!r}: attention kernels are kept under the name of their accelerator, which "
            "accelerator= chooses"
        )
    table = read_table(path)
    if kind == "collectives":
        targets, states = kinds.collectives(table, cluster, folds)
    else:
        fit = {
            "gemm": kinds.gemm,
            "attention": attention,
            "elementwise": kinds.elementwise,
            "training_attention": kinds.training_attention,
        }[kind]
        targets, states = fit(table, accelerator, folds)
    file = Path(os.fspath(path)).name
    fits = [fit for target in targets for fit in target.fits]
    entries = {}
    for target in targets:
        usual = target.name if kind == "attention" else f"{target.name}_calibrated"
        new = name if name is not None else usual
        if len(targets) > 1 and name is not None:
            new = f"{name}_{target.name}"
        entries[f"{target.kind}/{new}.toml"] = _entry(target, new, file, folds)
    return Calibration(
        kind=kind,
        table=pd.DataFrame([row for fit in fits for row in _constant_rows(fit)]),
        samples=_sample_table(table, states, _times(targets)),
        errors=pd.DataFrame([_error_row(fit, folds) for fit in fits]),
        entries=entries,
    )
