"""The states of a classic group and the transitions between them. The group checks them, and the docs draw them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class ClassicState(StrEnum):
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

TRANSITIONS: Final[Mapping[ClassicState, Mapping[ClassicState, str]]] = {
    ClassicState.EMPTY: {ClassicState.PREPARING_REBALANCE: "a first member joins", ClassicState.DEAD: _DELETED},
    ClassicState.PREPARING_REBALANCE: {
        ClassicState.COMPLETING_REBALANCE: "all members joined, or their time is up",
        ClassicState.EMPTY: "nobody is left",
        ClassicState.DEAD: _CONVERTED,
    },
    ClassicState.COMPLETING_REBALANCE: {
        ClassicState.STABLE: "the leader's assignment is stored",
        ClassicState.PREPARING_REBALANCE: _DISTURBED,
        ClassicState.DEAD: _CONVERTED,
    },
    ClassicState.STABLE: {ClassicState.PREPARING_REBALANCE: _DISTURBED, ClassicState.DEAD: _CONVERTED},
    ClassicState.DEAD: {},
}
"""The states that may follow each state, with the reason."""
