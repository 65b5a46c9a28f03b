"""What published training recipes do where a run does not say."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.stack_choice import FITTED_CONSTANTS

#: Classes of models, the most special first.
MODEL_CLASSES = (
    "hybrid_experts",
    "latent_experts",
    "compressed_experts",
    "windowed_experts",
    "experts",
    "delta_rules",
    "dense",
)
#: Letters of mixers that keep a state instead of keys.
_RECURRENT = frozenset("RPpZ")
_RANKS = ("one", "several")
_ROUTINGS = ("forced", "natural")
_CONTEXTS = ("ring", "all_to_all", "all_gather")
_RECOMPUTATIONS = ("none", "selective", "full")
_EVIDENCE = ("submission", "functional")
_OPTIMIZERS = ("adam", "muon")
_KEYS = {
    *("frameworks", "models", "names", "accelerators", "formats", "tasks", "from", "to"),
    *("tp", "pp", "cp"),
    *(
        "recompute",
        "recompute_layers",
        "overlap_tp",
        "attention",
        "packed",
        "documents",
        "lora_targets",
    ),
    *("context", "routing", "imbalance", "expert_spread", "evidence", "moment_bytes"),
    *("optimizer", "stack", "modules", "source"),
}
_FACTS = frozenset(row["name"] for row in _core.Stack.fields()) - set(FITTED_CONSTANTS)
#: Bounds from here on are years of publication, those below are releases such as 26.06.
_FIRST_YEAR = 2000
_RELEASE = re.compile(r"\b(\d{2}\.\d{2})\b")


@dataclass(frozen=True)
class Run:
    """What a recipe is looked up by.

    Attributes
    ----------
    framework : str
        As printed, with or without a release; the task's text may follow.
    model_class : str
        One of `MODEL_CLASSES`.
    accelerator : str
        Name of a catalogue entry.
    number_format : str
        Of GEMMs.
    method : str
        ``pretrain``, ``full`` or ``lora``.
    year : int, optional
        Of publication.
    tp, pp, cp : int
        Ranks that a layer, the layers and a sequence are divided over.
    routing : str
        ``forced`` where the run says that its router spreads tokens evenly, else ``natural``.
    model : str
        As printed.
    """

    framework: str
    model_class: str
    accelerator: str
    number_format: str
    method: str = "pretrain"
    year: int | None = None
    tp: int = 1
    pp: int = 1
    cp: int = 1
    routing: str = "natural"
    model: str = ""


@dataclass(frozen=True)
class Recipe:
    """What recipes do: each field is empty or None where all of them are silent.

    Attributes
    ----------
    recompute : tuple of str
        Recomputation to try in turn, the lightest first.
    recompute_layers : int
        Layers of each pipeline rank that full recomputation repeats; 0 for all.
    overlap_tp : bool, optional
        Whether tensor-parallel communication is hidden.
    attention : str
        Kernel of attention.
    packed : int
        Tokens of each of the equal sequences that a pack attends to as long as to its own; 0 where
        sequences are not packed.
    documents : int
        Tokens of a document in the mean, where a run says that it packs some; 0 where unknown.
    context : str
        How context ranks exchange what attention reads.
    imbalance : float
        Load of the busiest rank of experts over the mean.
    expert_spread : float
        Standard deviation of an expert's load over its mean, from which the load of the busiest
        rank follows; 0 where unknown.
    lora_targets : str
        Matrices beside which adapters sit.
    moment_bytes : int
        Of each moment of the optimizer; 0 where recipes are silent.
    optimizer : str
        As of `scalemodel.Training`; empty where recipes are silent.
    evidence : str
        What such runs are timed for, as `scalemodel.estimator.uncertainty.Situation` has it.
    stack : tuple of (str, object)
        Facts in which the run departs from its stack, by name.
    sources : tuple of str
        Of all recipes that match.
    """

    recompute: tuple[str, ...] = ()
    recompute_layers: int = 0
    overlap_tp: bool | None = None
    attention: str = ""
    packed: int = 0
    documents: int = 0
    context: str = ""
    imbalance: float = 1.0
    expert_spread: float = 0.0
    lora_targets: str = ""
    moment_bytes: int = 0
    optimizer: str = ""
    evidence: str = ""
    stack: tuple[tuple[str, object], ...] = ()
    sources: tuple[str, ...] = ()


def model_class(architecture: Mapping[str, Any]) -> str:
    """Class of a model that recipes tell apart, by its architecture alone.

    Parameters
    ----------
    architecture : mapping
        The ``[architecture]`` table of a model.

    Examples
    --------
    >>> model_class({"layers": 32}), model_class({"experts": 8, "window": 128})
    ('dense', 'windowed_experts')
    """
    if not architecture.get("experts"):
        return "delta_rules" if architecture.get("recurrence") == "gated_delta" else "dense"
    if set(str(architecture.get("mixers", ""))) & _RECURRENT:
        return "hybrid_experts"
    if architecture.get("kv_lora_rank"):
        return "latent_experts"
    if architecture.get("output_groups"):
        return "compressed_experts"
    return "windowed_experts" if architecture.get("window") else "experts"


def _when(run: Run, bound: float) -> float | None:
    """What of a run a bound is compared with: its year with a year, its release with a release.

    A year says nothing of the releases within it: a run that names none has none.
    """
    found = _RELEASE.search(run.framework)
    if bound < _FIRST_YEAR:
        return float(found.group(1)) if found else None
    return 2000 + int(found.group(1)[:2]) if run.year is None and found else run.year


def _within(table: Mapping[str, Any], run: Run) -> bool:
    for key, holds in (("from", operator.ge), ("to", operator.le)):
        if (bound := table.get(key)) is not None:
            when = _when(run, bound)
            if when is None or not holds(when, bound):
                return False
    return True


def _names(listed: Iterable[str], *values: str) -> bool:
    wanted = tuple(listed)
    return not wanted or any(value in wanted for value in values)


def _ranks(table: Mapping[str, Any], key: str, ranks: int) -> bool:
    return key not in table or (table[key] == "several") == (ranks > 1)


def _matches(table: Mapping[str, Any], run: Run) -> bool:
    framework = run.framework.lower()
    architecture = catalog.load("accelerators", run.accelerator).get("architecture", "")
    return (
        any(part in framework for part in table["frameworks"])
        and _names(table.get("models", ()), run.model_class)
        and any(part in run.model.lower() for part in table.get("names", ("",)))
        and _names(table.get("accelerators", ()), run.accelerator, architecture)
        and _names(table.get("formats", ()), run.number_format)
        and _names(table.get("tasks", ()), run.method)
        and table.get("routing", run.routing) == run.routing
        and all(_ranks(table, key, getattr(run, key)) for key in ("tp", "pp", "cp"))
        and _within(table, run)
    )


def check_recipe(table: Mapping[str, Any], where: str) -> None:
    """Refuse an entry that could never match, or that says something unknown.

    Raises
    ------
    ScaleModelError
        Names the entry, the key and what would be legal.
    """
    legal: tuple[tuple[str, Iterable[str]], ...] = (
        ("models", MODEL_CLASSES),
        ("recompute", _RECOMPUTATIONS),
    )
    if unknown := sorted(set(table) - _KEYS):
        raise ScaleModelError(f"{where}: {unknown[0]!r} is unknown; legal are {sorted(_KEYS)}")
    for key in ("frameworks", "source"):
        if not table.get(key):
            raise ScaleModelError(f"{where}: {key} is missing")
    for key, values in legal:
        if wrong := sorted(set(table.get(key, ())) - set(values)):
            raise ScaleModelError(f"{where}: {key}={wrong[0]!r}; legal are {', '.join(values)}")
    names = table.get("names", ["any"])
    if not names or not isinstance(names, list) or any(name != name.lower() for name in names):
        raise ScaleModelError(f"{where}: names={names!r}; legal is a list of lower-case texts")
    if wrong := sorted({table.get(key, "one") for key in ("tp", "pp", "cp")} - set(_RANKS)):
        raise ScaleModelError(f"{where}: {wrong[0]!r} ranks; legal are {', '.join(_RANKS)}")
    chosen = (
        ("routing", _ROUTINGS),
        ("context", _CONTEXTS),
        ("evidence", _EVIDENCE),
        ("optimizer", _OPTIMIZERS),
    )
    for key, values in chosen:
        if table.get(key, values[0]) not in values:
            raise ScaleModelError(f"{where}: {key}={table[key]!r}; legal are {', '.join(values)}")
    layers = table.get("recompute_layers", 1)
    whole = "full" in table.get("recompute", ())
    if type(layers) is not int or layers < 1 or ("recompute_layers" in table and not whole):
        raise ScaleModelError(
            f"{where}: recompute_layers={layers!r}; legal is a count beside full recomputation"
        )
    if wrong := sorted(set(table.get("stack", {})) - _FACTS):
        raise ScaleModelError(f"{where}: stack: {wrong[0]!r} is no fact of a stack")


@catalog.kept(1)
def recipes() -> tuple[Mapping[str, Any], ...]:
    """The entries of ``reference/recipes.toml``, checked, in their order."""
    listed = catalog.load("reference", "recipes")["recipes"]
    for number, table in enumerate(listed, start=1):
        check_recipe(table, f"reference/recipes.toml: recipe {number}")
    return tuple(listed)


@catalog.kept(256)
def released(framework: str, year: int | None = None) -> str:
    """The release that a framework's text stands for, where it names a development branch.

    Parameters
    ----------
    framework : str
        As printed.
    year : int, optional
        Of publication; None is any.

    Examples
    --------
    >>> released("Megatron-Bridge main", 2026), released("Megatron-Bridge 26.04", 2026)
    ('Megatron-Bridge 26.08', 'Megatron-Bridge 26.04')
    """
    for branch in catalog.load("reference", "recipes")["branches"]:
        if branch["framework"] in framework.lower() and year in (None, branch["year"]):
            return str(branch["release"])
    return framework


@catalog.kept(1024)
def recipe_for(run: Run) -> Recipe:
    """What the published recipes of a framework do for such a run.

    Of all recipes that match, the first that speaks of something decides it.

    Examples
    --------
    >>> run = Run("Megatron-Bridge 26.04", "latent_experts", "b200", "fp8")
    >>> recipe_for(run).recompute
    ('none',)
    >>> recipe_for(Run("a framework of one's own", "dense", "b200", "fp8")) == Recipe()
    True
    """
    matching = [table for table in recipes() if _matches(table, run)]
    facts: dict[str, object] = {}
    for table in reversed(matching):
        facts |= table.get("stack", {})
    recompute: Mapping[str, Any] = next((t for t in matching if t.get("recompute")), {})
    overlaps = [table["overlap_tp"] for table in matching if "overlap_tp" in table]
    return Recipe(
        recompute=tuple(recompute.get("recompute", ())),
        recompute_layers=int(recompute.get("recompute_layers", 0)),
        overlap_tp=overlaps[0] if overlaps else None,
        attention=next((t["attention"] for t in matching if t.get("attention")), ""),
        lora_targets=next((t["lora_targets"] for t in matching if t.get("lora_targets")), ""),
        packed=next((int(t["packed"]) for t in matching if "packed" in t), 0),
        documents=next((int(t["documents"]) for t in matching if "documents" in t), 0),
        imbalance=next((float(t["imbalance"]) for t in matching if "imbalance" in t), 1.0),
        expert_spread=next(
            (float(t["expert_spread"]) for t in matching if "expert_spread" in t), 0
        ),
        context=next((t["context"] for t in matching if t.get("context")), ""),
        moment_bytes=next((int(t["moment_bytes"]) for t in matching if "moment_bytes" in t), 0),
        optimizer=next((t["optimizer"] for t in matching if t.get("optimizer")), ""),
        evidence=next((t["evidence"] for t in matching if t.get("evidence")), ""),
        stack=tuple(sorted(facts.items())),
        sources=tuple(str(table["source"]) for table in matching),
    )
