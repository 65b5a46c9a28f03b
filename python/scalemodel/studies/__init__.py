"""Studies: questions of published papers, asked again as functions that return tables."""

from __future__ import annotations
