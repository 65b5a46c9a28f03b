"""How hypothesis runs everywhere: no time limit per example, and repeatable where CI is set."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("scalemodel", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("scalemodel")
