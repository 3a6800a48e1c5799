"""OpenTelemetry tracing for RL post-training.

Each RL step is a root span; under it are rollout, each trajectory's generate and env.step, train, optimizer and
weight_sync. Spans go to a journal in the run folder, from there over OTLP to a back end, and `rl-otel report` reads
them without any.

Names load when they are first used: importing this package costs next to nothing.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rl_otel._nothing import NOTHING

if TYPE_CHECKING:
    from rl_otel import context
    from rl_otel._configure import configure
    from rl_otel._runtime import flush, shutdown
    from rl_otel._ship import Delivery
    from rl_otel._spans.openers import (
        add,
        advantage,
        bind,
        buffer,
        checkpoint,
        current,
        data,
        env_reset,
        env_step,
        eval,  # noqa: A004 - the field's word
        generate,
        logprobs,
        offload,
        onload,
        optimizer,
        phase,
        ref_logprobs,
        reward,
        role,
        rollout,
        step,
        steps,
        train,
        trajectory,
        values,
        wait,
        weight_sync,
    )
    from rl_otel._version import __version__

__all__ = [
    "Delivery",
    "__version__",
    "add",
    "advantage",
    "bind",
    "buffer",
    "checkpoint",
    "configure",
    "context",
    "current",
    "data",
    "env_reset",
    "env_step",
    "eval",
    "flush",
    "generate",
    "logprobs",
    "offload",
    "onload",
    "optimizer",
    "phase",
    "ref_logprobs",
    "reward",
    "role",
    "rollout",
    "shutdown",
    "step",
    "steps",
    "train",
    "trajectory",
    "values",
    "wait",
    "weight_sync",
]

_MODULES = ("context",)
_HOME = {
    "Delivery": "_ship",
    "__version__": "_version",
    "configure": "_configure",
    "context": "context",
    "flush": "_runtime",
    "shutdown": "_runtime",
}


_loading: set[int] = set()  # threads


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    thread = get_ident()
    if thread in _loading:
        return NOTHING  # a signal handler has interrupted the import, and cannot wait for its end
    # All at once with `configure`: a forked child may wait for ever for an import that another thread was at, and
    # nothing can be imported when the interpreter exits.
    names = __all__ if name == "configure" else [name]
    try:
        _loading.add(thread)
        found = {each: _loaded(each) for each in names}
    except ImportError:
        if sys.is_finalizing():
            return NOTHING
        raise
    finally:
        _loading.discard(thread)
    globals().update(found)  # so that the next use is an ordinary look-up
    return found[name]


def _loaded(name: str) -> Any:
    module = import_module(f"rl_otel.{_HOME.get(name, '_spans.openers')}")
    return module if name in _MODULES else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
