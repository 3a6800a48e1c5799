"""docker-compose.yml: valid by its specification, safe, and at one with the files that it mounts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from stack import ports

ROOT = Path(__file__).parent.parent
CONFIGS = ROOT / "collector"
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]


def load(name: str) -> Any:
    return yaml.safe_load((CONFIGS / name).read_text())


def test_compose_follows_its_specification() -> None:
    """The file is valid by the JSON schema of the Compose specification."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, ROOT / "docker-compose.yml"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_compose_mounts_what_exists() -> None:
    """Each mounted file or folder is in the repository, read-only; each volume is declared, and none too many."""
    mounts = [mount.split(":") for service in SERVICES.values() for mount in service["volumes"]]
    files = [mount for mount in mounts if mount[0].startswith("./")]
    assert all((ROOT / mount[0]).exists() and mount[2] == "ro" for mount in files)
    assert {mount[0] for mount in mounts if mount not in files} == set(COMPOSE["volumes"])


def test_compose_is_reached_from_this_machine_alone() -> None:
    """Each port is on 127.0.0.1, may be changed, and has the default and the name that `make stack` uses."""
    published = [port for service in SERVICES.values() for port in service["ports"]]
    parts = [re.fullmatch(r"127\.0\.0\.1:\$\{(\w+):-(\d+)\}:(\d+)", port) for port in published]
    assert all(parts)
    defaults = {part[1]: int(part[2]) for part in parts if part}
    assert len(set(defaults.values())) == len(published)
    assert all(ports.DEFAULTS[name] == port for name, port in defaults.items() if name in ports.DEFAULTS)
    shown = dict(re.findall(r"^#(\w+)=(.*)$", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert {name: str(port) for name, port in defaults.items()}.items() <= shown.items()


def test_compose_keeps_each_service_in_bounds() -> None:
    """A pinned image, a memory limit, a restart policy, no more rights than it needs, and its health where it tells."""
    for name, service in SERVICES.items():
        assert re.search(r":v?\d+\.\d+\.\d+$", service["image"])
        assert service["mem_limit"]
        assert service["restart"] == "unless-stopped"
        assert service["cap_drop"] == ["ALL"]
        assert name == "collector" or service["healthcheck"]["test"][0] == "CMD"


def test_compose_starts_what_is_needed_first() -> None:
    """A service waits for services that exist and tell their health."""
    for service in SERVICES.values():
        for needed, condition in service.get("depends_on", {}).items():
            assert condition == {"condition": "service_healthy"}
            assert SERVICES[needed]["healthcheck"]


def test_compose_holds_no_secret() -> None:
    """No password or token stands in the file, and who has not signed in to Grafana may only look."""
    text = (ROOT / "docker-compose.yml").read_text() + (ROOT / ".env.example").read_text()
    assert not re.search(r"(?i)(password|token|secret)\w*\s*[:=]\s*\S", text)
    assert SERVICES["grafana"]["environment"]["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"


def test_services_reach_each_other() -> None:
    """Each address in the environment, and in Grafana's data sources, is a service with a port that it listens on."""
    listens = {
        "jaeger": {"4317", "16686"},
        "tempo": {"4317", str(load("tempo.yaml")["server"]["http_listen_port"])},
        "prometheus": {"9090"},
    }
    values = [value for service in SERVICES.values() for value in service.get("environment", {}).values()]
    addresses = [match for value in values if (match := re.fullmatch(r"(?:http://)?([a-z]+):(\d+)", str(value)))]
    addresses += [
        re.fullmatch(r"http://([a-z]+):(\d+)", source["url"])
        for source in load("grafana/datasources.yaml")["datasources"]
    ]
    assert len(addresses) == 7
    for address in addresses:
        assert address
        assert address[2] in listens[address[1]]
    assert ":4317" in load("tempo.yaml")["distributor"]["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]


@pytest.mark.parametrize("service", ["collector", "jaeger"])
def test_compose_sets_variables_that_the_files_read(service: str) -> None:
    """Each variable of the container is one that its configuration, or Go's runtime, reads."""
    texts = [
        (ROOT / mount.split(":")[0]).read_text() for mount in SERVICES[service]["volumes"] if mount.startswith("./")
    ]
    read = {name for text in texts for name in re.findall(r"\$\{env:(\w+)", text)} | {"GOMEMLIMIT"}
    assert set(SERVICES[service]["environment"]) <= read
