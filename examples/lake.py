"""The environment of the examples: FrozenLake in words, in the process that plays it or behind HTTP.

    python examples/lake.py            # serves, and prints its port

The server takes what it is asked as JSON, and records its steps and resets in the trace of whoever asks.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import gymnasium
from gymnasium.envs.toy_text.frozen_lake import generate_random_map

import rl_otel

MOVES = {"left": 0, "down": 1, "right": 2, "up": 3}
TILES = {"S": "ice", "F": "ice", "H": "hole", "G": "goal"}
SANDBOXES, SLOW, LATENCY = 32, 13, 0.1  # number 13 takes 100 ms longer a call, as one on a crowded node would


class TextLake:
    """FrozenLake in words. It blocks, as most environments do: call it from a thread."""

    def __init__(self, sandbox: int, size: int, turns: int) -> None:
        self.sandbox, self.size, self.left = sandbox, size, turns
        self.latency = LATENCY if sandbox == SLOW else 0.0

    def reset(self, map_seed: int) -> str:
        time.sleep(self.latency)
        self.tiles = generate_random_map(self.size, seed=map_seed)
        self.lake = gymnasium.make("FrozenLake-v1", desc=self.tiles, is_slippery=False)
        self.place, _ = self.lake.reset()
        return self.look()

    def step(self, words: list[str]) -> tuple[str, float, bool, bool]:
        """Walk the words that are moves. Returns observation, reward, terminated, truncated."""
        time.sleep(self.latency)
        self.left -= 1
        reward, terminated = 0.0, False
        for word in words:
            if word in MOVES and not terminated:
                self.place, reward, terminated, _, _ = self.lake.step(MOVES[word])
        return self.look(), float(reward), terminated, self.left == 0 and not terminated

    def look(self) -> str:
        row, column = divmod(self.place, self.size)
        around = (row, column - 1), (row + 1, column), (row, column + 1), (row - 1, column)
        return " ".join(TILES[self.tiles[r][c]] if {r, c} <= set(range(self.size)) else "wall" for r, c in around)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # connections that come at once


class Lakes(BaseHTTPRequestHandler):
    """What the server does: each connection has a lake of its own."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @rl_otel.role("env")
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with rl_otel.context.use(self.headers):
            answer = json.dumps(self.reset(**asked) if self.path == "/reset" else self.step(**asked)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    @rl_otel.env_reset("frozen-lake")
    def reset(self, lake: tuple[int, int, int], map_seed: int) -> str:
        self.lake = TextLake(*lake)
        return self.lake.reset(map_seed)

    @rl_otel.env_step("frozen-lake")
    def step(self, words: list[str]) -> tuple[str, float, bool, bool]:
        return self.lake.step(words)

    def log_message(self, *_: object) -> None:
        """Say nothing of each call."""


class RemoteLake(TextLake):
    """A lake on the server."""

    def __init__(self, port: int, sandbox: int, size: int, turns: int) -> None:
        super().__init__(sandbox, size, turns)
        self.connection = HTTPConnection("127.0.0.1", port)

    def reset(self, map_seed: int) -> str:
        return str(self.ask("/reset", lake=(self.sandbox, self.size, self.left), map_seed=map_seed))

    def step(self, words: list[str]) -> tuple[str, float, bool, bool]:
        text, reward, terminated, truncated = self.ask("/step", words=words)
        if terminated or truncated:
            self.connection.close()
        return text, reward, terminated, truncated

    def ask(self, path: str, **what: Any) -> Any:
        self.connection.request("POST", path, json.dumps(what), rl_otel.context.inject({}))
        return json.load(self.connection.getresponse())


def serve() -> None:
    """Serve until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with Server(("127.0.0.1", 0), Lakes) as server:
        print(server.server_port, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    serve()
