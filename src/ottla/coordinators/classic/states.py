"""The states of a classic group and the transitions between them. The group checks them, and the docs draw them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """The state of a classic group, with the name that Kafka shows to clients."""

    EMPTY = "Empty"
    """The group has no members: it is new, its members left, or it only stores offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are asked to join again. Those that have joined wait for the others."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """A new generation waits for its leader's assignment."""
    STABLE = "Stable"
    DEAD = "Dead"


_DELETED: Final = "deleted or expired"
_CONVERTED: Final = "becomes a consumer group"
_DISTURBED: Final = "a member joins, leaves, fails or changes its mind"

TRANSITIONS: Final[Mapping[State, Mapping[State, str]]] = {
    State.EMPTY: {State.PREPARING_REBALANCE: "a first member joins", State.DEAD: _DELETED},
    State.PREPARING_REBALANCE: {
        State.COMPLETING_REBALANCE: "all members joined, or their time is up",
        State.EMPTY: "nobody is left",
        State.DEAD: _CONVERTED,
    },
    State.COMPLETING_REBALANCE: {
        State.STABLE: "the leader's assignment is stored",
        State.PREPARING_REBALANCE: _DISTURBED,
        State.DEAD: _CONVERTED,
    },
    State.STABLE: {State.PREPARING_REBALANCE: _DISTURBED, State.DEAD: _CONVERTED},
    State.DEAD: {},
}
"""The states that may follow each state, with the reason."""
