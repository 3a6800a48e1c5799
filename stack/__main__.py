"""The commands: up, down, status, build."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stack import golang, ports, programs, running
from stack.services import services

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stack.services import Service


def up(data: Path) -> int:
    """Start what does not run yet, and say where to look."""
    numbers = ports.chosen()
    data.mkdir(parents=True, exist_ok=True)
    before = running.remembered(data)
    try:
        for service in services(numbers, data):
            if service.name not in before:
                _start(service, numbers, data)
    except BaseException:
        for name in reversed(running.remembered(data)):
            if name not in before:
                running.stop(name, data)
        raise
    _tell_where(numbers, data)
    return 0


def down(data: Path) -> int:
    """End what was started; the data stay."""
    started = running.remembered(data)
    for name in reversed(started):
        running.stop(name, data)
        print(f"{name} ended")
    print(f"The data stay in {data}" if started else "Nothing runs that was started here")
    return 0


def status(data: Path) -> int:
    """Say what runs; the code is 0 if all of it serves."""
    started = running.remembered(data)
    well = True
    for service in services(ports.chosen(), data):
        process = started.get(service.name)
        serves = process is not None and running.serves(process)
        word = "serves" if serves else "runs and does not answer" if process else "does not run"
        print(f"{service.name:<11} {word}" + (f" (pid {process.pid})" if process else ""))
        well = well and serves
    return 0 if well else 1


def build(data: Path) -> int:
    """Build what is neither on PATH nor in the cache, and start nothing."""
    for program in programs.ALL:
        print(f"{program.name:<11} {programs.obtain(program)}")
    return 0


def _start(service: Service, numbers: Mapping[str, int], data: Path) -> None:
    program = programs.obtain(service.program)
    process = running.start(service, program, numbers, data)
    print(f"{service.name:<11} {program} (pid {process.pid})")


def _tell_where(numbers: Mapping[str, int], data: Path) -> None:
    built = programs.built(programs.JAEGER)
    pages = "its API alone; for its pages put a released one on PATH" if built else "pages and API"
    print(f"""
Send     OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:{numbers["OTLP_HTTP_PORT"]} make demo
Traces   http://127.0.0.1:{numbers["JAEGER_PORT"]} (Jaeger: {pages})
Metrics  http://127.0.0.1:{numbers["PROMETHEUS_PORT"]} (Prometheus: its API)
Data     {data}, logs too
End it   make stack-down""")


def main() -> int:
    """Run one command."""
    commands = {command.__name__: command for command in (up, down, status, build)}
    parser = argparse.ArgumentParser(prog="python -m stack", description=sys.modules["stack"].__doc__)
    parser.add_argument("command", choices=commands)
    parser.add_argument("--data", type=Path, default=ports.ROOT / ".cache" / "stack", help="folder of data and logs")
    arguments = parser.parse_args()
    try:
        return commands[arguments.command](arguments.data.resolve())
    except (golang.BuildError, running.StartError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
