"""Sequences longer than the positions that a model has learned."""

from __future__ import annotations

import warnings

from scalemodel.resolve.models import Model
from scalemodel.resolve.tasks import Training


def warn_of_positions(model: Model, tokens: float, given: str, stacklevel: int = 4) -> None:
    """A warning where a model has learned fewer positions than a sequence has tokens.

    The table is a choice of the run that trains it, and published ones made it as long as their
    sequences (MPT, llm-foundry, max_seq_len), so that the question has an answer; a checkpoint as
    it is has none for the tokens behind. Some tables count rows that no token stands at (OPT 2,
    BERT 2).

    Parameters
    ----------
    model : Model
    tokens : float
        Of one sequence, the longest where they differ.
    given : str
        The arguments that say so.

    Examples
    --------
    >>> import scalemodel as sm
    >>> warn_of_positions(sm.model("gpt2_xl"), 1024, "sequence=1024")
    >>> warn_of_positions(sm.model("llama3_8b"), 1e6, "sequence=1000000")
    """
    shape = model.shape
    if shape.position != "learned" or tokens <= shape.positions:
        return
    warnings.warn(
        f"{given}: {model.name} has a table of {shape.positions} learned positions, and tokens "
        f"behind them have none; must be at most {shape.positions} tokens, or the model one with a "
        "longer table (parameters are counted as the table is)",
        stacklevel=stacklevel,
    )


def warn_of_sequence(model: Model, task: Training, stacklevel: int = 4) -> None:
    """As `warn_of_positions`, of a step: those of a pack start again with each document."""
    tokens = task.sequence
    if task.packs is not None:
        tokens = max(task.packs.lengths)
    warn_of_positions(model, tokens, f"sequence={task.sequence}", stacklevel + 1)
