"""Two hosts on one machine, as two network namespaces with a cable between them that can be pulled.

    python -m tests.stack.hosts FOLDER               # run it by `unshare`: `scenario()` does

On the one is the gateway with a back end behind it, and rank 1 of a run; on the other rank 0, which sends to the agent
of its node. Each has a name and a loopback of its own, so everything listens where it does by default.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stack import programs
from tests.needs import UNSHARE
from tests.process import ROOT
from tests.receiver import Receiver
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

GATEWAY, NODE = "10.0.0.1", "10.0.0.2"

RANK = """
import sys
import rl_otel
from tests.shipping import play_step

rl_otel.configure("hosts", endpoint="http://127.0.0.1:4318")
for line in sys.stdin:
    play_step(int(line), trajectories=4, turns=3)
    print(rl_otel.flush(), flush=True)
print(rl_otel.shutdown(), flush=True)
"""


def scenario(folder: Path) -> dict[str, Any]:
    """Run it all, and return what the back end got while the cable was out, and in the end."""
    command = [*UNSHARE, sys.executable, "-m", "tests.stack.hosts", str(folder)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=240)
    return dict(json.loads(done.stdout))


class Host:
    """A host; this process is on the one without a `pid`."""

    def __init__(self, name: str, folder: Path, pid: int | None = None) -> None:
        self._inside = [] if pid is None else ["nsenter", f"--target={pid}", "--net", "--uts"]
        self._folder = folder / name
        self._folder.mkdir()
        self.log = self._folder / "log"
        self.call("hostname", name)
        self.call("ip", "link", "set", "lo", "up")

    def call(self, *command: str) -> None:
        """Run a command on it."""
        subprocess.run([*self._inside, *command], check=True, timeout=30)

    def start(self, *command: str, **environment: str) -> subprocess.Popen[str]:
        """Start a program on it."""
        pipe, both = subprocess.PIPE, {**os.environ, **environment}
        with self.log.open("a") as log:
            return subprocess.Popen(
                [*self._inside, *command], cwd=ROOT, env=both, stdin=pipe, stdout=pipe, stderr=log, text=True
            )

    @contextlib.contextmanager
    def collector(self, *files: str, **environment: str) -> Iterator[None]:
        """Run a collector on it, once it serves."""
        configs = [f"--config={programs.CONFIGS / file}" for file in files]
        queue = str(self._folder / "queue")
        process = self.start(str(programs.obtain(programs.COLLECTOR)), *configs, QUEUE_DIR=queue, **environment)
        try:
            until(lambda: "Everything is ready" in self.log.read_text() or process.poll() is not None)
            assert process.poll() is None, self.log.read_text()
            yield
        finally:
            process.kill()

    def rank(self, number: int, folder: Path) -> Rank:
        """Start a rank of the run on it."""
        ranks = {"RANK": str(number), "WORLD_SIZE": "2", "RL_OTEL_RUN_ID": "hosts", "RL_OTEL_RUN_DIR": str(folder)}
        return Rank(self.start(sys.executable, "-c", RANK, **ranks))


class Rank:
    """A process that takes a step when it is told to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def step(self, number: int) -> None:
        """Have it take a step, and wait until that is with its collector."""
        self._tell(f"{number}\n")

    def end(self) -> str:
        """Have it end; return what it says of its delivery."""
        assert self._process.stdin
        self._process.stdin.close()
        said = self._said()
        assert self._process.wait(timeout=30) == 0
        return said

    def _tell(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(line)
        self._process.stdin.flush()
        self._said()

    def _said(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()


def main(folder: Path) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        here = Host("gateway", folder)
        holder = subprocess.Popen(["unshare", "--net", "--uts", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        stack.callback(holder.kill)
        until(lambda: Path(f"/proc/{holder.pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink())
        node = Host("node", folder, holder.pid)
        here.call("ip", "link", "add", "name", "cable", "type", "veth", "peer", "name", "eth0")
        here.call("ip", "link", "set", "eth0", "netns", str(holder.pid))
        for host, end, address in ((here, "cable", GATEWAY), (node, "eth0", NODE)):
            host.call("ip", "address", "add", f"{address}/24", "dev", end)
            host.call("ip", "link", "set", end, "up")
        back_end = stack.enter_context(Receiver(http_port=9090, grpc_port=14317))
        assert back_end.grpc
        stack.enter_context(here.collector("collector.yaml", "gateway.yaml"))
        stack.enter_context(node.collector("agent.yaml", GATEWAY_ENDPOINT=f"{GATEWAY}:4317"))
        ranks = [node.rank(0, folder), here.rank(1, folder)]
        return run(here, node, ranks, back_end)


def run(here: Host, node: Host, ranks: list[Rank], back_end: Receiver) -> dict[str, Any]:
    """Take steps before, while and after the cable is out."""

    def play(steps: range) -> None:
        for number in steps:
            for rank in ranks:
                rank.step(number)

    def got(host: str) -> int:
        return len({span.proto.span_id for span in back_end.spans if span.resource["host.name"] == host})

    play(range(3))
    until(lambda: got("node") == got("gateway") > 0)
    before = got("node")
    here.call("ip", "link", "set", "cable", "down")
    play(range(3, 6))
    # Longer than a request's time (5 s) and the first pause after it (5 s): one has failed and is failing again. What a
    # longer cut adds is more of these, at pauses of up to 30 s, for which the test would have to wait in the end.
    until(lambda: node.log.read_text().count("Will retry the request") >= 2)
    out = got("node") - before
    here.call("ip", "link", "set", "cable", "up")
    play(range(6, 9))
    said = [rank.end() for rank in ranks]
    until(lambda: got("node") == got("gateway"), seconds=90.0)
    spans = {
        span.proto.span_id.hex(): [span.proto.trace_id.hex(), span.resource["host.name"]] for span in back_end.spans
    }
    return {"out": out, "spans": spans, "said": said}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))  # noqa: T201
