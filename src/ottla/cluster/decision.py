"""What a decider returns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ottla.cluster.changes import Change

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """The result of a decider: the changes to append, which may be none, and a result for the caller."""

    changes: Sequence[Change]
    result: R
