"""Published training runs: cells that the run leaves empty and its published recipe fills."""

from __future__ import annotations

from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.recipe_layouts import Job, corrections_for, layout_for
from scalemodel.validation.place import accelerator_name
from scalemodel.validation.rows import Row, SkippedRowError


def _model(text: str) -> str:
    """The catalogue's name of a model, empty where it does not know it."""
    return catalog.find("models", text) if catalog.is_entry("models", text) else ""


def filled(row: Row, method: str, notes: list[str]) -> Row:
    """The row with what its framework's recipe for this model and job says where it is silent.

    Flags are joined: those of the row stand first, and win. Degrees that the recipe contradicts are
    the recipe's.

    Parameters
    ----------
    row : Row
    method : str
        ``pretrain``, ``full`` or ``lora``.
    notes : list of str
        Gets a note of what was filled.
    """
    try:
        job = Job(
            framework=f"{row.text('framework')} {row.text('task')}",
            model=_model(row.text("model")),
            accelerator=accelerator_name(row.text("gpu"), row.number("gpu_mem_GB")),
            method=method,
            count=row.count("n_gpus") or 0,
            cp=row.count("cp") or 1,
            tp=row.count("tp") or 1,
        )
    except (ScaleModelError, SkippedRowError):
        return row
    known = layout_for(job)
    found = {key: text for key, text in known.items() if not row.text(key)}
    found |= corrections_for(job)
    if not found:
        return row
    notes.append(f"{', '.join(f'{key} {text}' for key, text in found.items())} by the recipe")
    if known.get("other_flags") and row.text("other_flags"):
        found["other_flags"] = f"{row.text('other_flags')}; {known['other_flags']}"
    return Row({**row.cells, **found})
