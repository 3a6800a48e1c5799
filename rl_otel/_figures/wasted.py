"""What was generated and never trained on, of a run that says what it trains on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wasted:
    """Trajectories that no step has trained on, with the tokens that the policy generated for them, and of how many."""

    trajectories: int
    tokens: int
    of_trajectories: int
    of_tokens: int
