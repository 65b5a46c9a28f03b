"""A study on one HTML page: `report` and the `Report` it returns."""

from __future__ import annotations

from scalemodel.reports.study import Report, report

__all__ = ["Report", "report"]
