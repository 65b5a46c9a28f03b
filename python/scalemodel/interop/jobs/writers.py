"""Predicted beside measured where a job writes its metrics: TensorBoard, Weights & Biases, MLflow.

No tracker is imported: what is written to is told by its methods.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from scalemodel.base.errors import ScaleModelError

Metrics = Mapping[str, float]

#: What a metric is called in every tracker, before its own name.
PREFIX = "scalemodel/"


def write_function(writer: Any) -> Callable[[Metrics, int], object]:
    """How metrics of a step are written to a tracker.

    Parameters
    ----------
    writer : object
        A ``SummaryWriter`` of TensorBoard (``add_scalar(tag, value, step)``), the module or a run
        of MLflow or a logger of Lightning (``log_metrics(metrics, step=)``), the module or a run of
        Weights & Biases or an ``Accelerator`` (``log(metrics, step=)``), or a function of metrics
        and step.

    Raises
    ------
    ScaleModelError : it has none of these.

    Examples
    --------
    >>> told = []
    >>> write_function(lambda metrics, step: told.append((step, metrics)))({"a": 1.0}, 3)
    >>> told
    [(3, {'a': 1.0})]
    """
    if callable(getattr(writer, "add_scalar", None)):
        # TensorBoard holds one number per tag.
        return lambda metrics, step: [
            writer.add_scalar(name, value, step) for name, value in metrics.items()
        ]
    for name in ("log_metrics", "log"):
        method = getattr(writer, name, None)
        if callable(method):
            return lambda metrics, step, method=method: method(dict(metrics), step=step)  # type: ignore[misc]
    if callable(writer):
        return lambda metrics, step: writer(dict(metrics), step)
    raise ScaleModelError(
        f"writer={writer!r}: must have add_scalar (TensorBoard), log_metrics (MLflow, Lightning) "
        "or log (Weights & Biases, Accelerate), or be a function of metrics and step"
    )


class Writer:
    """One tracker of a job, which is left alone once it fails: metrics must not end a job."""

    def __init__(self, writer: Any, every: int, first_step: int) -> None:
        for name, value, least in (("every", every, 1), ("first_step", first_step, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ScaleModelError(f"{name}={value!r}: must be a whole number from {least}")
        self._write = write_function(writer)
        self._name = type(writer).__name__
        self._every = every
        self._first = first_step
        self._works = True

    def write(self, metrics: Metrics, step: int) -> None:
        """Write the metrics of a step, where it is one that is written."""
        if not self._works or step % self._every:
            return
        try:
            self._write(
                {PREFIX + name: value for name, value in metrics.items()}, self._first + step
            )
        except Exception as error:
            self._works = False
            warnings.warn(
                f"{self._name} takes no metrics ({error}); nothing more is written to it",
                RuntimeWarning,
                stacklevel=4,
            )
