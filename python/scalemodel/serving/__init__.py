"""Serving: what an inference engine delivers on a cluster, in closed form and by request."""

from __future__ import annotations

from scalemodel.base.lazy_names import load_at_first_use

#: Names that `__init__.pyi` lists: an estimate of training asks for the least of them.
__all__ = load_at_first_use(__name__)
