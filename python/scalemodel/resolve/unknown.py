"""Names that stand for something else than was asked for, and what is said of them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError, nearest

#: Words around an accelerator's name that do not tell accelerators apart.
_AROUND: Final = re.compile(r"\b(vera|grace|hgx|gpus?|nodes?|servers?|clusters?|pods?)\b")
#: Models of a family that are listed.
_MOST: Final = 12


def accelerator_meant(label: str) -> str | None:
    """The accelerator that a text names, where it is no name of a cluster.

    Examples
    --------
    >>> accelerator_meant("H100 SXM"), accelerator_meant("Vera Rubin"), accelerator_meant("dgx_h10")
    ('h100_sxm_80', 'rubin', None)
    """
    words = re.sub(r"[\s_\-]+", " ", label.lower())
    for text in (label, _AROUND.sub("", words).strip()):
        if text and catalog.is_entry("accelerators", text):
            return catalog.find("accelerators", text)
    return _words_of_accelerators().get(_words(label))


def _words(label: str) -> frozenset[str]:
    """Words of a label in any order; a capacity counts with its unit and without."""
    return frozenset(word.removesuffix("gb") for word in re.findall(r"[a-z0-9]+", label.lower()))


@catalog.kept(1)
def _words_of_accelerators() -> dict[frozenset[str], str]:
    found: dict[frozenset[str], str] = {}
    for name in catalog.names("accelerators"):
        with suppress(ScaleModelError):  # a broken entry; its own name tells why
            for label in (name, *catalog.load("accelerators", name).get("aliases", ())):
                found.setdefault(_words(str(label)), name)
    return found


def clusters_with(accelerator: str) -> list[str]:
    """Clusters of the catalogue that are made of an accelerator.

    Examples
    --------
    >>> clusters_with("mi300x")
    ['azure_nd_mi300x_v5', 'mi300x_node', 'oci_bm_gpu_mi300x']
    """
    found = []
    for name in catalog.names("clusters"):
        try:
            given = catalog.load("clusters", name).get("accelerator")
        except ScaleModelError:  # a broken entry; its own name tells why
            continue
        if isinstance(given, str) and given == accelerator:
            found.append(name)
    return found


def is_model(source: object) -> bool:
    """Whether what was given for a cluster is a model, by name or by its contents."""
    if isinstance(source, Mapping):
        return "architecture" in source or "model_type" in source
    if isinstance(source, str):
        return any(catalog.is_entry(kind, source) for kind in ("models", "composed"))
    return type(source).__name__ in ("Model", "ComposedModel")


def swapped(argument: str, value: object) -> ScaleModelError:
    """The error where a model stands in the place of a cluster, or the other way round."""
    is_, wanted = ("model", "cluster") if argument == "cluster" else ("cluster", "model")
    example = "llama3_8b" if argument == "model" else "dgx_h100"
    shown = repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:77]}..."
    return ScaleModelError(
        f"{argument}={shown}: is a {is_}, where a {wanted} such as {example!r} must stand; the "
        "model is given first, then the cluster: did you swap them?",
        code=f"unknown_{argument}",
    )


def unknown_cluster(label: str, error: ScaleModelError) -> ScaleModelError:
    """What is said of a name that is no cluster: `error`, or what the name stands for."""
    if is_model(label):
        return swapped("cluster", label)
    instead = (
        "give a cluster of sm.list_catalog('clusters') such as dgx_h100 or gb200_nvl72, an "
        "accelerator's name, or a table such as {'accelerator': 'h100_sxm_80'}"
    )
    said = re.sub(r"known: .*?(?=; SCALEMODEL|$)", instead, str(error))
    return ScaleModelError(said, code=error.code, details=error.details)


def _families() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for name in catalog.names("models"):
        try:
            found[str(catalog.load("models", name).get("family", "")) or name].append(name)
        except ScaleModelError:  # a broken entry; its own name tells why
            continue
    return dict(found)


def is_hardware(label: str) -> bool:
    """Whether a name stands for a cluster or an accelerator."""
    return catalog.is_entry("clusters", label) or accelerator_meant(label) is not None


def unknown_model(label: str, error: ScaleModelError, why: str = "unknown") -> ScaleModelError:
    """What is said of a name that is no model: the nearest ones of its family, and its config."""
    if is_hardware(label):
        return swapped("model", label)
    families = _families()
    word = label.lower().replace("-", "").replace("_", "")
    named = [family for family in families if family.replace("_", "") in word]
    if named:
        family = max(named, key=len)
        listed = sorted(families[family], key=lambda name: not name.startswith(family))
        told = f"models of the family {family}: {', '.join(listed[:_MOST])}"
        told += ", ..." if len(listed) > _MOST else ""
    else:
        told = nearest(label, catalog.names("models"))
        if "did you mean" not in told:
            told = f"families of the catalogue: {', '.join(sorted(families))}"
    hub = "/" in label or "did you mean" not in told
    config = "pass its config.json (a path, its folder, or its contents)" if hub else ""
    missing = re.search(r"SCALEMODEL_CATALOG_PATH.*$", str(error))  # a folder that is not there
    parts = (f"model={label!r}: {why}", config, told, missing[0] if missing else "")
    said = "; ".join(part for part in parts if part)
    return ScaleModelError(said, code=error.code, details=error.details)


def no_file(argument: str, source: object, error: ScaleModelError) -> ScaleModelError:
    """What is said of a file that cannot be read: `error`, and what may stand in its place."""
    said = (
        f"{error}; {argument}={str(source)!r} must be the path of a file that exists, or a name of "
        f"sm.list_catalog('{argument}s')"
    )
    return ScaleModelError(said, code=error.code, details=error.details)
