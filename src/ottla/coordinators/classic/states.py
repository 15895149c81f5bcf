"""The states of a classic group, and which may follow which: the table that the group obeys and the docs draw."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """By the names that Kafka tells to clients."""

    EMPTY = "Empty"
    """No members: a new group, one that lost them, or one that only stores offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are asked to join again; those who did wait for the others."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """A new generation waits for the assignment that its leader makes."""
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
"""For each state those that may follow it, and why they do."""
