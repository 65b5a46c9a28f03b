"""Claims that cited systems make of themselves, predicted.

Every claim is one number of a paper (``reference/cited_systems.toml``, ``cited_runs.toml``) and a
function that computes it with this package. `cited_systems` sets both side by side. Nothing is
fitted to a claim: one that is missed says by how much, and why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.studies.cited_systems import fabrics, network, runs, training
from scalemodel.studies.cited_systems.claim import Claim
from scalemodel.studies.cited_systems.network import textbook_collectives

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CLAIMS", "Claim", "cited_systems", "textbook_collectives"]

CLAIMS: tuple[Claim, ...] = (
    *training.CLAIMS,
    *runs.CLAIMS,
    *network.CLAIMS,
    *fabrics.CLAIMS,
)


def cited_systems(systems: Sequence[str] | None = None) -> pd.DataFrame:
    """Published claims of cited systems beside predictions.

    Parameters
    ----------
    systems : sequence of str, optional
        Tables of the reference entries, such as ``"zero"``; default: all.

    Returns
    -------
    DataFrame, one row per claim
        Columns system, claim, published, predicted, ``error_fraction`` (predicted over published,
        less one), ``within_fraction`` (largest error of a claim that is met), met, reason (of a
        claim that is missed), source. Units are those of the claim; bytes and seconds for sizes
        and times.

    Raises
    ------
    ScaleModelError : an unknown system; the nearest ones are named.

    Examples
    --------
    >>> table = cited_systems(["zero", "logp"])
    >>> table.met.all().item(), float(table.predicted.iloc[-1])
    (True, 24.0)
    """
    import pandas as pd

    known = list(dict.fromkeys(claim.system for claim in CLAIMS))
    for name in systems or ():
        if name not in known:
            raise ScaleModelError(f"systems: {name!r}: makes no claim; {nearest(name, known)}")
    entries = {claim.entry for claim in CLAIMS}
    sources = {
        name: catalog.list_catalog("reference", name).set_index("key")["source"] for name in entries
    }
    source, rows = "", []
    for claim in CLAIMS:
        said = str(sources[claim.entry][f"{claim.system}.{claim.key}"])
        source = f"{source.split(';')[0]}; {said}" if said.startswith("same") else said
        if systems is not None and claim.system not in systems:
            continue
        asked = claim.published()
        predicted = claim.predict()
        error = predicted / asked - 1
        met = abs(error) <= claim.within + 1e-9
        row = (claim.system, claim.what, asked, predicted, error, claim.within, met)
        rows.append((*row, "" if met else claim.reason, source))
    columns = ["system", "claim", "published", "predicted", "error_fraction", "within_fraction"]
    return pd.DataFrame(rows, columns=[*columns, "met", "reason", "source"])
