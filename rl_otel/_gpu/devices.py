"""The devices of the node as their drivers tell them, one call at a time: what fails is left out, the rest stays."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar

from rl_otel._gpu.vendors import DRIVERS, Driver
from rl_otel._readings import Reading
from rl_otel._safety import pass_on, say_once, words_of

_FIXED: Final = "limit"  # asked for once: a device does not grow
_REST: Final = 60  # readings for which a call that failed is not tried again

Value = TypeVar("Value")


def attempt(what: str, ask: Callable[[], Value], default: Value) -> Value:
    """Return an answer, or where there is none `default`, with one line for who looks for it."""
    try:
        return ask()
    except Exception as error:
        pass_on(error)
        text = f"{type(error).__name__}: {words_of(error)}"
        say_once(f"gpu {what}", "rl_otel: %s is left out: %s", what, text, level=logging.DEBUG)
        return default


class Devices:
    """All devices of which a driver is there. Used by one thread."""

    def __init__(self) -> None:
        self._drivers: list[Driver] = []
        self._known: dict[str, tuple[Driver, Any, str]] = {}  # by UUID: driver, handle, name
        self._resting: dict[tuple[str, str], int] = {}  # by device and figure: readings to go, -1 for ever
        self._fixed: dict[tuple[str, str], Any] = {}
        missing = [f"{kind.__name__}: {reason}" for kind in DRIVERS if (reason := self._try(kind()))]
        if not self:
            text = "; ".join(missing)
            say_once("gpu driver", "rl_otel: no GPU driver tells anything: %s", text, level=logging.DEBUG)

    def __bool__(self) -> bool:
        return bool(self._known)

    @property
    def uuids(self) -> list[str]:
        """All devices, and parts of devices, in the order of their driver."""
        return list(self._known)

    @property
    def whole(self) -> list[str]:
        """All devices that are no parts of one."""
        return [uuid for uuid in self._known if not uuid.startswith("MIG-")]

    @property
    def alike(self) -> bool:
        """Whether all are of one kind: then the fastest is the first, however one counts."""
        names = {self._known[uuid][2] for uuid in self.whole}
        return len(names) == 1 and "" not in names

    def read(self, uuid: str) -> Reading:
        """Return what a device tells now."""
        driver, device, name = self._known[uuid]
        figures = {
            figure: self._figure(driver, uuid, figure, lambda ask=ask: ask(device))  # type: ignore[misc]
            for figure, ask in driver.figures.items()
        }
        return Reading(uuid, name, **figures)

    def close(self) -> None:
        """Let go of the drivers."""
        for driver in self._drivers:
            attempt("the end of a GPU driver", driver.close, None)
        self._drivers.clear()
        self._known.clear()

    def _try(self, driver: Driver) -> str:
        """Take on a driver's devices, or return why not."""
        try:
            driver.open()
            self._drivers.append(driver)
            for uuid, device in driver.devices().items():
                self._known[uuid] = (driver, device, _name(driver, uuid, device))
        except Exception as error:
            pass_on(error)
            return f"{type(error).__name__}: {words_of(error)}"
        return ""

    def _figure(self, driver: Driver, uuid: str, figure: str, ask: Callable[[], Any]) -> Any:
        key = (uuid, figure)
        if key in self._fixed:
            return self._fixed[key]
        if resting := self._resting.get(key):
            self._resting[key] = resting - 1 if resting > 0 else resting
            return None

        def asked() -> Any:
            try:
                return ask()
            except Exception as error:
                self._resting[key] = -1 if driver.never(error) else _REST
                raise

        value = attempt(f"{figure} of GPU {uuid}", asked, None)
        if figure == _FIXED and value is not None:
            self._fixed[key] = value
        return value


def _name(driver: Driver, uuid: str, device: Any) -> str:
    return attempt(f"the name of GPU {uuid}", lambda: driver.name(device), "")
