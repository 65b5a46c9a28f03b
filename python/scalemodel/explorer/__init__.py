"""A question whose parts are turned by hand, answered at once: `explore` and its `Explorer`."""

from __future__ import annotations

from scalemodel.explorer.state import Explorer, explore

__all__ = ["Explorer", "explore"]
