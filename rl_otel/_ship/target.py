"""Where the settings say that spans and metrics go."""

from __future__ import annotations

from typing import Any

from rl_otel._config import Config, proxies
from rl_otel._send import METRICS, TRACES, Target, resolve


def target_of(config: Config, protocol: str | None = None) -> Target:
    """Return where the endpoint leads, with `protocol` in place of the one in the settings.

    Raises:
        ValueError: no address can be read from it.
    """
    return _resolved(config, "", TRACES, protocol)


def metrics_target_of(config: Config) -> Target:
    """Return where the endpoint for metrics leads.

    Raises:
        ValueError: no address can be read from it.
    """
    return _resolved(config, "metrics_", METRICS)


def _resolved(config: Config, prefix: str, signal: str, protocol: str | None = None) -> Target:
    """Return where one of the two endpoints leads: their settings differ in what the names begin with."""

    def told(name: str) -> Any:
        return getattr(config, prefix + name)

    def file(name: str) -> str | None:
        path = told(name)
        return None if path is None else str(path)

    return resolve(
        told("endpoint") or "",
        protocol or told("protocol"),
        signal=signal,
        as_is=told("endpoint_exact"),
        headers=told("headers"),
        gzip=told("compression") == "gzip",
        certificate=file("certificate"),
        client_certificate=file("client_certificate"),
        client_key=file("client_key"),
        insecure=told("insecure"),
        proxies=proxies(),
    )
