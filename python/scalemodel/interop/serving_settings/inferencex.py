"""Recipes and results of InferenceX (InferenceMAX).

Fields: ``configs/CONFIGS.md`` of the benchmark, where concurrencies double from ``conc-start`` to
``conc-end``; those of a result: ``utils/process_result.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.interop.serving_settings.engines import model_of, stored_format
from scalemodel.interop.serving_settings.objects import accelerator_in
from scalemodel.interop.serving_settings.record import ServingSettings
from scalemodel.resolve.engines import engine_for

_ENGINES: Final = {"trt": "tensorrt_llm", "sglang": "sglang", "vllm": "vllm"}
_PRECISIONS: Final = ("bf16", "fp16", "fp8", "fp4", "int4")
#: Spellings of attention data parallelism.
_SHARED: Final = ("dp-attn", "dp_attention", "dp-attention")
_MOST_POINTS: Final = 10_000


def _wrong(name: str, value: object, legal: str) -> ScaleModelError:
    return ScaleModelError(
        f"inferencex: {name}={value!r}: must be {legal}", code="malformed_setting"
    )


def _whole(table: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    name = next((each for each in names if table.get(each) is not None), names[0])
    value = table.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, str, float)):
        raise _wrong(name, value, "a whole number")
    try:
        number = float(value)
    except ValueError:
        raise _wrong(name, value, "a whole number") from None
    if not number.is_integer() or not 0 <= number <= 1e9:
        raise _wrong(name, value, "a whole number")
    return int(number)


def _switch(table: Mapping[str, Any], *names: str) -> bool:
    value = next((table[name] for name in names if table.get(name) is not None), False)
    return str(value).lower() in ("true", "1")


def _table(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(name, value, "a table")
    return value


class Entry:
    """What all points of an entry share."""

    def __init__(self, table: Mapping[str, Any], engine: str) -> None:
        framework = str(table.get("framework", ""))
        family = next((name for part, name in _ENGINES.items() if part in framework), "")
        if not family:
            raise _wrong("framework", framework, "one of vllm, sglang, trt, or dynamo before them")
        self.family = family
        self.engine = engine_for(engine or family.replace("_", "-"))
        self.hub = str(table.get("model", ""))
        if not self.hub:
            raise _wrong("model", self.hub, "the id of a model")
        self.model = model_of(self.hub)
        self.notes: list[str] = []
        asked = str(table.get("precision", "bf16")).lower()
        if asked not in _PRECISIONS:
            raise _wrong("precision", asked, "one of " + ", ".join(_PRECISIONS))
        # A recipe says how many bits there are, the checkpoint how they are scaled.
        stored = stored_format(self.hub, self.model)
        kin = stored.startswith(asked) or (asked == "fp4" and stored == "mxfp4")
        self.precision = stored if kin else asked
        self.cluster = accelerator_in(str(table.get("hw") or table.get("runner") or ""))

    def layout(self, table: Mapping[str, Any], prefix: str = "") -> _core.ServingLayout:
        """Degrees of a point or of a pool of it."""
        tp = _whole(table, f"{prefix}tp")
        ep = _whole(table, f"{prefix}ep", default=1) or 1
        pp = _whole(table, f"{prefix}pp", "pp_size", default=1) or 1
        shared = _switch(
            table, f"{prefix}dp-attn", f"{prefix}dp_attention", f"{prefix}dp-attention"
        )
        routed = self.model is None or self.model.shape.experts > 0
        if ep > 1 and self.family == "vllm":
            ep = tp  # The engine spreads experts over all ranks or none.
        degrees: dict[str, Any] = {"tp": 1, "dp": tp} if shared and routed else {"tp": tp, "dp": 1}
        return _core.ServingLayout(pp=pp, ep=ep if routed else 1, **degrees)

    def settings(self, table: Mapping[str, Any], **known: Any) -> ServingSettings:
        """The settings of a point or of a pool of it."""
        drafts, notes = 0, list(self.notes)
        method = str(table.get("spec-decoding", table.get("spec_decoding", "none")) or "none")
        if method.lower() not in ("none", "false", ""):
            drafts = 1
            notes.append(f"spec-decoding {method}: one token is taken, the recipe names no number")
        return ServingSettings(
            framework=self.family,
            engine=self.engine,
            hub=self.hub,
            model=self.model,
            precision=self.precision,
            speculative_tokens=drafts,
            cluster=self.cluster,
            notes=tuple(notes),
            **known,
        )


def _point(entry: Entry, table: Mapping[str, Any], **load: Any) -> ServingSettings:
    """One pool, or two where the point has them."""
    if not isinstance(table.get("prefill"), Mapping):
        return entry.settings(table, layout=entry.layout(table), replicas=1, **load)
    pools = {role: _table(table.get(role), role) for role in ("prefill", "decode")}
    counts = {role: _whole(pool, "num-worker", default=1) for role, pool in pools.items()}
    parts = {
        role: entry.settings(
            table,
            layout=entry.layout(pool),
            replicas=max(1, counts[role]),
            role=role if counts["decode"] else "",
            **load,
        )
        for role, pool in pools.items()
    }
    if not counts["decode"]:
        return parts["prefill"]
    return replace(parts["decode"], prefill=parts["prefill"])


def _concurrencies(table: Mapping[str, Any]) -> list[int]:
    given = table.get("conc-list")
    if isinstance(given, Sequence) and not isinstance(given, str):
        return [_whole({"conc-list": each}, "conc-list") for each in given]
    first, last = _whole(table, "conc-start"), _whole(table, "conc-end")
    if not 1 <= first <= last:
        raise _wrong("conc-start", first, f"from 1 to conc-end, {last}")
    found = [first]
    while found[-1] < last:
        found.append(min(2 * found[-1], last))
    return found


def _recipe(table: Mapping[str, Any], engine: str) -> list[ServingSettings]:
    """Every point of an entry of a master file."""
    entry = Entry(table, engine)
    scenarios = table.get("scenarios")
    fixed = table.get("seq-len-configs")
    if isinstance(scenarios, Mapping):
        fixed = scenarios.get("fixed-seq-len")
    if not isinstance(fixed, Sequence) or isinstance(fixed, str) or not fixed:
        raise _wrong("scenarios", scenarios, "a table with fixed-seq-len")
    points: list[ServingSettings] = []
    for case in fixed:
        lengths = _table(case, "fixed-seq-len")
        load: dict[str, Any] = {"input_tokens": float(_whole(lengths, "isl"))}
        load["output_tokens"] = float(_whole(lengths, "osl"))
        spaces = lengths.get("search-space")
        if not isinstance(spaces, Sequence) or isinstance(spaces, str):
            raise _wrong("search-space", spaces, "a list of points")
        for each in spaces:
            space = _table(each, "search-space")
            for concurrency in _concurrencies(space):
                points.append(_point(entry, space, concurrency=float(concurrency), **load))
                if len(points) > _MOST_POINTS:
                    raise _wrong("search-space", len(points), f"at most {_MOST_POINTS} points")
    if not points:
        raise _wrong("search-space", fixed, "a list with a point")
    return points


def _result(table: Mapping[str, Any], engine: str) -> ServingSettings:
    """The settings behind a result."""
    entry = Entry(table, engine)
    load: dict[str, Any] = {
        "input_tokens": float(_whole(table, "isl")),
        "output_tokens": float(_whole(table, "osl")),
        "concurrency": float(_whole(table, "conc")),
    }
    if not _switch(table, "disagg"):
        prefix = "prefill_" if table.get("tp") is None else ""
        return entry.settings(table, layout=entry.layout(table, prefix), replicas=1, **load)
    parts = {
        role: entry.settings(
            table,
            layout=entry.layout(table, f"{role}_"),
            replicas=_whole(table, f"{role}_num_workers", default=1),
            role=role,
            **load,
        )
        for role in ("prefill", "decode")
    }
    return replace(parts["decode"], prefill=parts["prefill"])


def read_inferencex(source: Mapping[str, Any], engine: str) -> ServingSettings:
    """The settings of a recipe or of a result.

    Examples
    --------
    >>> case = {"isl": 1024, "osl": 1024,
    ...         "search-space": [{"tp": 2, "conc-start": 4, "conc-end": 16}]}
    >>> read = read_inferencex({"model": "openai/gpt-oss-120b", "runner": "h200",
    ...     "precision": "fp4", "framework": "vllm", "scenarios": {"fixed-seq-len": [case]}}, "")
    >>> [point.concurrency for point in read.points], read.precision, read.cluster
    ([4.0, 8.0, 16.0], 'mxfp4', 'h200')
    """
    if "conc" in source:
        return _result(source, engine)
    if "framework" not in source:
        entries = [each for each in source.values() if isinstance(each, Mapping)]
        if len(entries) != 1:
            raise ScaleModelError(
                f"inferencex: {len(entries)} recipes; pass one, as {next(iter(source), '')!r}",
                code="malformed_setting",
            )
        source = entries[0]
    points = _recipe(source, engine)
    return replace(points[0], points=tuple(points) if len(points) > 1 else ())
