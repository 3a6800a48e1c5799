"""Where the settings say that spans and metrics go."""

from __future__ import annotations

from pathlib import Path

from rl_otel._config import Config, proxies
from rl_otel._send import METRICS, Target, resolve


def target_of(config: Config, protocol: str | None = None) -> Target:
    """Return where the endpoint leads, with `protocol` in place of the one in the settings.

    Raises:
        ValueError: no address can be read from it.
    """
    return resolve(
        config.endpoint or "",
        protocol or config.protocol,
        as_is=config.endpoint_exact,
        headers=config.headers,
        gzip=config.compression == "gzip",
        certificate=_file(config.certificate),
        client_certificate=_file(config.client_certificate),
        client_key=_file(config.client_key),
        insecure=config.insecure,
        proxies=proxies(),
    )


def metrics_target_of(config: Config) -> Target:
    """Return where the endpoint for metrics leads.

    Raises:
        ValueError: no address can be read from it.
    """
    return resolve(
        config.metrics_endpoint or "",
        config.metrics_protocol,
        signal=METRICS,
        as_is=config.metrics_endpoint_exact,
        headers=config.metrics_headers,
        gzip=config.metrics_compression == "gzip",
        certificate=_file(config.metrics_certificate),
        client_certificate=_file(config.metrics_client_certificate),
        client_key=_file(config.metrics_client_key),
        insecure=config.metrics_insecure,
        proxies=proxies(),
    )


def _file(path: Path | None) -> str | None:
    return None if path is None else str(path)
