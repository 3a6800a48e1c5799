"""The ports of 127.0.0.1 that the stack listens on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent

#: The first four are those of docker-compose.yml too, under the same names.
DEFAULTS: Final = {
    "OTLP_HTTP_PORT": 4318,
    "OTLP_GRPC_PORT": 4317,
    "JAEGER_PORT": 16686,
    "PROMETHEUS_PORT": 9090,
    "COLLECTOR_HEALTH_PORT": 13133,
    "JAEGER_HEALTH_PORT": 13134,
    "JAEGER_OTLP_PORT": 14317,
    "JAEGER_GRPC_PORT": 16685,
}


def chosen() -> dict[str, int]:
    """Return each port: from the environment, else from `.env`, else its default.

    Raises:
        ValueError: one of them is no port.
    """
    given = {**_from_file(ROOT / ".env"), **os.environ}
    return {name: _port(name, given.get(name) or str(default)) for name, default in DEFAULTS.items()}


def _from_file(path: Path) -> dict[str, str]:
    lines = path.read_text().splitlines() if path.exists() else []
    pairs = (line.partition("=") for line in lines if not line.lstrip().startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _port(name: str, value: str) -> int:
    if value.isdecimal() and 0 < int(value) < 65536:
        return int(value)
    raise ValueError(f"{name} is no port: {value}")
