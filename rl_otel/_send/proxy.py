"""The proxy that `HTTP_PROXY` and its kin name, as other exporters honour it; grpc reads them by itself."""

from __future__ import annotations

from collections.abc import Mapping


def proxy_for(host: str, port: int, secure: bool, environment: Mapping[str, str]) -> str | None:
    """Return the proxy's URL for requests to `host`, or None where they go straight there."""
    values = {name.lower(): value for name, value in environment.items() if name.lower().endswith("_proxy") and value}
    # A CGI server puts a client's `Proxy:` header into HTTP_PROXY, so the small letters win.
    values |= {name: value for name, value in environment.items() if name in values and value}
    proxy = values.get("https_proxy" if secure else "http_proxy") or values.get("all_proxy")
    return None if proxy is None or _bypassed(host, port, values.get("no_proxy", "")) else proxy


def _bypassed(host: str, port: int, no_proxy: str) -> bool:
    names = {name.strip().lower().lstrip(".") for name in no_proxy.split(",")} - {""}
    host = host.lower()
    return any(
        name == "*" or name in {host, f"{host}:{port}"} or host.endswith("." + name.removesuffix(f":{port}"))
        for name in names
    )
