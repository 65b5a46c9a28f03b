"""Where the numbers of an estimate come from: a tree of terms with formula, inputs and source."""

from __future__ import annotations

from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.estimator.evaluation import Evaluation
from scalemodel.estimator.explain.explanation import Explanation
from scalemodel.estimator.explain.page import estimate_html
from scalemodel.estimator.explain.terms import term_tree

__all__ = ["Explanation", "estimate_html", "explain"]


def _bare(name: str) -> str:
    """A name as terms are looked up: ``exposed_tp_s`` and ``memory_weights_bytes`` are columns."""
    name = name.strip().lower().replace("_", " ")
    for suffix in (" s", " bytes", " j", " usd", " fraction"):
        name = name.removesuffix(suffix)
    return name.removeprefix("memory ").removeprefix("exposed ")


def _find(tree: Explanation, path: list[str]) -> Explanation | None:
    """First term, breadth first, whose name is the head of the path and holds the rest."""
    level: list[Explanation] = [tree]
    while level:
        for node in level:
            if _bare(node.name) == path[0]:
                if len(path) == 1:
                    return node
                below = [
                    found
                    for child in node.children
                    if (found := _find(child, path[1:])) is not None
                ]
                if below:
                    return below[0]
        level = [child for node in level for child in node.children]
    return None


def explain(est: Evaluation, term: str | None = None) -> Explanation:
    """The tree of terms behind an estimate, or one branch of it.

    Parameters
    ----------
    est : Estimate
    term : str, optional
        Name of a term or column, or a path of names joined by points: ``"memory"``,
        ``"exposed_tp_s"``, ``"compute.layer 0.qkv"``.

    Raises
    ------
    ScaleModelError : no such term; the message names the nearest ones.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
    ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2))
    >>> memory = explain(est, "memory")
    >>> abs(sum(part.value for part in memory.children) / memory.value - 1) < 1e-9
    True
    """
    tree = term_tree(est)
    if term is None:
        return tree
    path = [_bare(part) for part in str(term).split(".")]
    found = _find(tree, path)
    if found is None:
        known = list(dict.fromkeys(node.name for node in tree.walk()))
        raise ScaleModelError(
            f"term={term!r}: unknown; {nearest(str(term), known)}",
            code="unknown_term",
            details={"term": term},
        )
    return found
