"""The catalogue as a page holds it: names resolved to what the engine takes, once, at export."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.estimator.evaluation import stack_at
from scalemodel.resolve.clusters import Cluster
from scalemodel.resolve.models import Model

#: What the page says of the size of a job, in place of the record's own count.
_ELSEWHERE = ("accelerators",)


def plain_record(record: Any, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Fields of a record of the engine that differ from their defaults, ready for JSON.

    Examples
    --------
    >>> import scalemodel as sm
    >>> plain_record(sm.Strategy(tp=8, sharding="zero3"))
    {'tp': 8, 'sharding': 'zero3'}
    """
    found = {}
    for row in record.fields():
        name, value = row["name"], getattr(record, row["name"])
        if name not in without and value != row["default"]:
            found[name] = plain(value)
    return found


def plain(value: Any) -> Any:
    """A value of a record, ready for JSON.

    Examples
    --------
    >>> plain((1, 2))
    [1, 2]
    """
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return plain_record(value) if hasattr(value, "fields") else value


def _model_entry(model: Model) -> dict[str, Any]:
    entry = {
        "title": model.title or model.name,
        "shape": plain_record(model.shape),
    }
    if model.vision is not None:
        entry["vision"] = plain_record(model.vision)
    return entry


def models() -> dict[str, Any]:
    """Every model of the catalogue: its title and what the engine makes its layers of.

    Examples
    --------
    >>> models()["llama3_8b"]["shape"]["layers"]
    32
    """
    return {name: _model_entry(resolve.model(name)) for name in catalog.names("models")}


def _cluster_entry(cluster: Cluster, stacks: Mapping[str, int]) -> dict[str, Any]:
    accelerator = cluster.table["accelerator"]
    return {
        "title": cluster.title + (" (announced)" if cluster.announced else ""),
        "accelerator": str(accelerator.get("title", cluster.accelerator)),
        "node_accelerators": int(cluster.core.node_accelerators),
        "priced": bool(cluster.core.price_usd_per_s > 0),
        "core": plain_record(cluster.core, without=_ELSEWHERE),
        "stacks": dict(stacks),
    }


def clusters() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Every cluster of one kind of accelerator, and the software stacks as they are on them.

    Returns
    -------
    tuple
        Entries by name; ``stacks`` of an entry says for every stack which of the records that
        follow it is on this cluster. Those records, each once.
    """
    found: dict[str, Any] = {}
    records: dict[Any, int] = {}
    for name in catalog.names("clusters"):
        try:
            cluster = resolve.cluster(name, nodes=1)
        except ScaleModelError:  # parts of several kinds: no cluster of this question
            continue
        on = {
            stack: records.setdefault(stack_at(stack, cluster), len(records))
            for stack in catalog.names("stacks")
        }
        found[name] = _cluster_entry(cluster, on)
    return found, [plain_record(record) for record in records]


def stack_titles() -> dict[str, str]:
    """What a menu calls each software stack."""
    return {
        name: str(catalog.load("stacks", name).get("title", name))
        for name in catalog.names("stacks")
    }
