"""The command line as ``python -m scalemodel``."""

from scalemodel.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
