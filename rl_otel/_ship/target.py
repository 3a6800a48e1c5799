"""Where the settings say that spans go."""

from __future__ import annotations

from pathlib import Path

from rl_otel._config import Config, proxies
from rl_otel._send import Target, resolve


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


def _file(path: Path | None) -> str | None:
    return None if path is None else str(path)
