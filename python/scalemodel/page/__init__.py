"""A page that answers without installation, the engine inside it: `export_page`."""

from __future__ import annotations

from scalemodel.page.export import export_page

__all__ = ["export_page"]
