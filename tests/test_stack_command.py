"""`python -m stack`, with stand-ins for the programs: what is found, started, refused, ended and said."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stack import ports, programs, running
from tests.stack.running import free_ports, run
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Answers 200 where the service's health is asked for, as the real ones do.
STAND_IN = f"""#!{sys.executable}
import http.server, os, sys

class Well(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

if "--version" in sys.argv or "validate" in sys.argv:
    sys.exit("version 2.42")
listen = [word.partition("=")[2] for word in sys.argv if word.startswith("--web.listen-address")]
host, port = (listen or [os.environ.get("HEALTH_LISTEN")])[0].split(":")
http.server.HTTPServer((host, int(port)), Well).serve_forever()
"""


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Free ports, a cache of stand-ins, and nothing on PATH; whatever still runs at the end is ended."""
    for program in programs.ALL:
        put(tmp_path / "rl-otel" / program.key / program.name, STAND_IN)
    chosen = dict(zip(ports.DEFAULTS, free_ports(len(ports.DEFAULTS)), strict=True))
    yield {name: str(port) for name, port in chosen.items()} | {"XDG_CACHE_HOME": str(tmp_path), "PATH": ""}
    for name in running.remembered(Path.cwd()):
        running.stop(name, Path.cwd())


def put(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script)
    path.chmod(0o755)


def test_without_go_one_sentence_says_what_to_do(tmp_path: Path) -> None:
    """Nothing is found and nothing can be built: the message names the program and the way to get Go."""
    done = run("up", "--data=data", PATH="", XDG_CACHE_HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith("prometheus cannot be built without Go")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("value", ["http", "0", "65536", "-1"])
def test_a_wrong_port_is_named(environment: dict[str, str], value: str) -> None:
    """The message names the variable and its value."""
    done = run("up", f"--data={Path.cwd()}", **{**environment, "JAEGER_PORT": value})
    assert (done.returncode, done.stderr) == (1, f"JAEGER_PORT is no port: {value}\n")


def test_a_taken_port_is_named_and_nothing_stays(environment: dict[str, str]) -> None:
    """The message names the port and how to choose another; what had started before is ended."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("up", f"--data={Path.cwd()}", **{**environment, "OTLP_HTTP_PORT": str(port)})
    assert done.returncode == 1
    assert done.stderr == f"Port {port} is taken; choose another by OTLP_HTTP_PORT\n"
    assert running.remembered(Path.cwd()) == {}


def test_a_program_that_ends_shows_its_last_words(environment: dict[str, str], tmp_path: Path) -> None:
    """The message has the end of the log, and nothing stays."""
    jaeger = tmp_path / "rl-otel" / programs.JAEGER.key / "jaeger"
    put(jaeger, f"#!{sys.executable}\nraise SystemExit('no such key: badger')\n")
    done = run("up", f"--data={Path.cwd()}", **environment)
    assert done.returncode == 1
    assert done.stderr.startswith("jaeger did not start; the end of ")
    assert done.stderr.endswith("no such key: badger\n")
    assert running.remembered(Path.cwd()) == {}


def test_up_status_down(environment: dict[str, str]) -> None:
    """What was started serves, is told with its addresses, is not started twice, and ends."""
    data = f"--data={Path.cwd()}"
    assert run("status", data, **environment).returncode == 1
    done = run("up", data, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:{environment['OTLP_HTTP_PORT']} make demo" in done.stdout
    begun = running.remembered(Path.cwd())
    assert list(begun) == ["prometheus", "jaeger", "collector"]
    assert run("status", data, **environment).returncode == 0
    assert run("up", data, **environment).returncode == 0
    assert running.remembered(Path.cwd()) == begun
    done = run("down", data, **environment)
    assert done.stdout.splitlines()[:3] == ["collector ended", "jaeger ended", "prometheus ended"]
    assert not any(running.lives(process) for process in begun.values())
    assert run("down", data, **environment).stdout == "Nothing runs that was started here\n"


def test_up_brings_back_what_has_crashed(environment: dict[str, str]) -> None:
    """After a crash of one service `up` starts that one, and leaves the others alone."""
    data = f"--data={Path.cwd()}"
    run("up", data, **environment)
    begun = running.remembered(Path.cwd())
    os.kill(begun["jaeger"].pid, 9)
    until(lambda: not running.lives(begun["jaeger"]))
    assert "jaeger      does not run" in run("status", data, **environment).stdout
    assert run("up", data, **environment).returncode == 0
    again = running.remembered(Path.cwd())
    run("down", data, **environment)
    assert {name for name in again if again[name] != begun[name]} == {"jaeger"}


def test_down_ends_nobody_else(environment: dict[str, str]) -> None:
    """A process that has the number of one that was started, and is another one, lives on."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        Path("running.json").write_text(json.dumps({"jaeger": [other.pid, "before its time", "http://127.0.0.1:1/"]}))
        done = run("down", f"--data={Path.cwd()}", **environment)
        assert done.stdout == "Nothing runs that was started here\n"
        assert other.poll() is None
        other.kill()


def test_a_program_on_path_comes_first_if_it_fits(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What accepts our file is taken from PATH; what does not, and an old Prometheus, are passed over."""
    monkeypatch.setenv("XDG_CACHE_HOME", environment["XDG_CACHE_HOME"])
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    put(tmp_path / "bin" / "otelcol", f"#!{sys.executable}\n")
    put(tmp_path / "bin" / "jaeger", f"#!{sys.executable}\nraise SystemExit(1)\n")
    put(tmp_path / "bin" / "prometheus", f"#!{sys.executable}\nprint('prometheus, version 2.42.0')\n")
    assert programs.find(programs.COLLECTOR) == tmp_path / "bin" / "otelcol"
    for program in (programs.JAEGER, programs.PROMETHEUS):
        assert programs.find(program) == tmp_path / "rl-otel" / program.key / program.name
    put(tmp_path / "bin" / "prometheus", f"#!{sys.executable}\nprint('prometheus, version 3.16.0')\n")
    assert programs.find(programs.PROMETHEUS) == tmp_path / "bin" / "prometheus"


def test_ports_come_from_the_environment_then_from_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port in the environment wins over one in `.env`, that over the default; comments count for nothing."""
    monkeypatch.setattr(ports, "ROOT", tmp_path)
    (tmp_path / ".env").write_text("#OTLP_GRPC_PORT=1\nJAEGER_PORT=26686\n\nPROMETHEUS_PORT = 29090\n")
    monkeypatch.setenv("PROMETHEUS_PORT", "39090")
    chosen = ports.chosen()
    assert (chosen["OTLP_GRPC_PORT"], chosen["JAEGER_PORT"], chosen["PROMETHEUS_PORT"]) == (4317, 26686, 39090)
