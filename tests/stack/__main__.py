"""Builds the servers that tests need."""

from __future__ import annotations

from tests.stack import SERVERS

for server in SERVERS.values():
    server.build()
    print(server.path)  # noqa: T201
