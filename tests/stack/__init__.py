"""Servers that some tests send to, as users run them: from the PATH, or built from the Go modules in `go/`.

`python -m tests.stack` builds what is missing into `.cache/stack`, by version; it needs Go and its module proxy, and
takes minutes and all cores, so CI does it before any test runs. Each `go/<name>/go.mod` pins a server with all of its
parts; another version is `go get -tool <package>@<version>` there.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).parent
_CACHE = _HERE.parent.parent / ".cache" / "stack"


@dataclass(frozen=True)
class Server:
    """A program that is built from its source."""

    name: str
    package: str
    tags: str = ""

    @property
    def path(self) -> Path | None:
        """Where it is, or None."""
        found = shutil.which(self.name) or shutil.which(self._built)
        return Path(found) if found else None

    @property
    def _module(self) -> Path:
        return _HERE / "go" / self.name

    @property
    def _built(self) -> Path:
        lines = (self._module / "go.mod").read_text()
        required = re.findall(r"^\t(\S+) (v\S+)", lines, re.MULTILINE)
        version = next(version for module, version in required if self.package.startswith(module + "/"))
        return _CACHE / f"{self.name}-{version}" / self.name

    def build(self) -> None:
        """Build it, unless it is there.

        Raises:
            FileNotFoundError: there is no Go.
            subprocess.CalledProcessError: it cannot be built.
        """
        if self.path is None:
            part = self._built.with_suffix(".part")  # so that a build that was broken off leaves nothing to be run
            subprocess.run(["go", "build", "-tags", self.tags, "-o", part, self.package], cwd=self._module, check=True)
            part.replace(self._built)


#: Without service discovery, which no test needs and which takes longest to build.
PROMETHEUS = Server("prometheus", "github.com/prometheus/prometheus/cmd/prometheus", "remove_all_sd")

SERVERS = {server.name: server for server in (PROMETHEUS,)}
