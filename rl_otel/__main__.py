"""`python -m rl_otel` is `rl-otel`."""

from __future__ import annotations

import sys

from rl_otel._cli import main

if __name__ == "__main__":
    sys.exit(main())
