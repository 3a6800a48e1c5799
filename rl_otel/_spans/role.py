"""Roles: several loops in one process, as generation tasks beside a trainer, each with a timeline of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rl_otel import semconv
from rl_otel._safety import say_once
from rl_otel._spans import misuse
from rl_otel._timeline import Here, get_here, here

if TYPE_CHECKING:
    from typing_extensions import Self

    from rl_otel._spans.span import Function

MOST: Final = 32  # roles of a process; what comes after them shares one name

_known: dict[str, None] = {}


class Role(metaclass=misuse.Opener):
    """A loop of its own in this process: its phases are on a timeline of their own, its spans carry `rl.role`.

    Tasks that begin inside belong to it for as long as they run. A thread does where its function is decorated, or
    passed through `bind()`.

    Args:
        name: of low cardinality, as in `generator`.
    """

    name = "role"
    recording = False  # it is no span, and lasts no longer than the function it decorates

    def __init__(self, name: str) -> None:
        misuse.check_brackets(type(self), name)
        self.role = _bounded(misuse.words_for(name, 64))

    def __enter__(self) -> Self:
        here.set(Here(self.role, self, get_here()))
        return self

    def __exit__(self, *error: object) -> None:
        opened = get_here()
        if opened is not None:
            here.set(opened.without(self))

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *error: object) -> None:
        self.__exit__()

    def start(self) -> Self:
        """Begin where no `with` can stand; `end` ends it."""
        return self.__enter__()

    def end(self, error: BaseException | None = None) -> None:
        """End it."""
        self.__exit__()

    def __call__(self, function: Function) -> Function:
        """Decorate a function, coroutine function, generator or async generator: each call is in this role."""
        from rl_otel._spans.decorate import decorated  # decorating is rare, and needs inspect

        decorating: Any = decorated(self, function)
        return decorating  # type: ignore[no-any-return]

    def fresh(self) -> Self:
        """Return a handle like this one that has not begun; decorators make one for each call."""
        return type(self)(self.role)

    def __reduce__(self) -> Any:
        return type(self), (self.role,)


def _bounded(name: str) -> str:
    if name not in _known:
        if len(_known) >= MOST:
            say_once(
                "roles",
                "rl_otel: role(%r): a process has at most %d roles; what comes after them is %r",
                name,
                MOST,
                semconv.OTHER,
            )
            return semconv.OTHER
        _known[name] = None
    return name


__all__ = ["Role"]
