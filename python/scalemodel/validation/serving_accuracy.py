"""Predict the package's served runs and write the intervals that they give.

    python -m scalemodel.validation.serving_accuracy

writes ``catalog/reference/serving_uncertainty.toml``.
"""

from __future__ import annotations

import datetime
from pathlib import Path

from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.validation import validate
from scalemodel.validation.inference_score import residuals
from scalemodel.validation.serving_intervals import cells_of, text_of


def main() -> None:
    """Predict the published runs and write the file."""
    found = residuals(validate(kind="inference"))
    if not found:
        raise ScaleModelError("no published run was predicted: the file is left as it is")
    path = Path(catalog.path_of("reference", "serving_uncertainty"))
    today = datetime.date.today().isoformat()
    path.write_text(text_of(cells_of(found), found, today), encoding="utf-8")


if __name__ == "__main__":
    main()
