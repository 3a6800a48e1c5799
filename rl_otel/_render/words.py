"""Spans in words: what tells one from others of its name, and what was recorded on it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rl_otel import semconv
from rl_otel._record import Attributes, End
from rl_otel._table import cut

_LONGEST = 40  # characters of a name or a value


def described(name: str, attributes: Attributes) -> str:
    """Return a span's name with what tells it from others of that name: environment, tool, reason."""
    keys = (semconv.ENVIRONMENT_NAME, semconv.TOOL_NAME, semconv.WAIT_REASON)
    words = [str(attributes[key]) for key in keys if key in attributes]
    return " ".join(cut(word, _LONGEST) for word in (name, *words))


def recorded(record: End, shown: Collection[str]) -> list[str]:
    """Return what `record()` was told, by its words: `kl 0.02`; without the attributes that are shown already."""
    kind = semconv.WEIGHT_SYNC if semconv.SYNC_PART in record.attributes else record.name
    names = {word.attribute: name for name, word in semconv.WORDS.get(kind, {}).items()}
    told = []
    for attribute, value in record.attributes.items():
        word = names.get(attribute, _under_a_prefix(attribute))
        if word is not None and attribute not in shown:
            told.append(f"{cut(word, _LONGEST)} {cut(_value(value), _LONGEST)}")
    return told


def _under_a_prefix(attribute: str) -> str | None:
    """Return the word of an attribute that the host has named a part of, None where it is none."""
    for prefix, word in ((semconv.CUSTOM, ""), (semconv.TRAJECTORIES_DROPPED.format(reason=""), "dropped ")):
        if attribute.startswith(prefix):
            return word + attribute.removeprefix(prefix)
    return None


def _value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
