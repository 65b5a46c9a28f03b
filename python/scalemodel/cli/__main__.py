"""``python -m scalemodel.cli``."""

from __future__ import annotations

import sys

from scalemodel.cli import main

if __name__ == "__main__":
    sys.exit(main())
