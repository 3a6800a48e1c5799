"""What runs: each program with its configuration, its ports and its folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stack import programs
from stack.programs import CONFIGS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True)
class Service:
    """A program to run."""

    name: str
    program: programs.Program
    arguments: list[str]
    environment: dict[str, str]
    health: str  # answers 200 once it serves
    ports: list[str]  # names of those that it listens on


def services(ports: Mapping[str, int], data: Path) -> list[Service]:
    """Return the services in the order in which they start; their data lie below `data`."""
    at = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    return [_prometheus(at, data), _jaeger(at, data), _collector(at, data)]


def _prometheus(at: Mapping[str, str], data: Path) -> Service:
    arguments = [
        f"--config.file={CONFIGS / 'prometheus.yaml'}",
        f"--storage.tsdb.path={data / 'prometheus'}",
        f"--web.listen-address={at['PROMETHEUS_PORT']}",
        "--web.enable-otlp-receiver",
        "--enable-feature=exemplar-storage",
    ]
    health = f"http://{at['PROMETHEUS_PORT']}/-/ready"
    return Service("prometheus", programs.PROMETHEUS, arguments, {}, health, ["PROMETHEUS_PORT"])


def _jaeger(at: Mapping[str, str], data: Path) -> Service:
    environment = {
        "JAEGER_DATA": str(data / "jaeger"),
        "JAEGER_UI": str(CONFIGS / "jaeger-ui.json"),
        "HEALTH_LISTEN": at["JAEGER_HEALTH_PORT"],
        "OTLP_GRPC_LISTEN": at["JAEGER_OTLP_PORT"],
        "QUERY_HTTP_LISTEN": at["JAEGER_PORT"],
        "QUERY_GRPC_LISTEN": at["JAEGER_GRPC_PORT"],
        "PROMETHEUS_ENDPOINT": f"http://{at['PROMETHEUS_PORT']}",
    }
    arguments = [f"--config={CONFIGS / 'jaeger.yaml'}"]
    ports = ["JAEGER_PORT", "JAEGER_OTLP_PORT", "JAEGER_GRPC_PORT", "JAEGER_HEALTH_PORT"]
    health = f"http://{at['JAEGER_HEALTH_PORT']}/status"
    return Service("jaeger", programs.JAEGER, arguments, environment, health, ports)


def _collector(at: Mapping[str, str], data: Path) -> Service:
    environment = {
        "QUEUE_DIR": str(data / "queue"),
        "HEALTH_LISTEN": at["COLLECTOR_HEALTH_PORT"],
        "OTLP_GRPC_LISTEN": at["OTLP_GRPC_PORT"],
        "OTLP_HTTP_LISTEN": at["OTLP_HTTP_PORT"],
        "JAEGER_ENDPOINT": at["JAEGER_OTLP_PORT"],
        "PROMETHEUS_ENDPOINT": f"http://{at['PROMETHEUS_PORT']}",
    }
    arguments = [f"--config={CONFIGS / 'collector.yaml'}"]
    ports = ["OTLP_GRPC_PORT", "OTLP_HTTP_PORT", "COLLECTOR_HEALTH_PORT"]
    health = f"http://{at['COLLECTOR_HEALTH_PORT']}/"
    return Service("collector", programs.COLLECTOR, arguments, environment, health, ports)
