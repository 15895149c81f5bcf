"""What a decider returns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ottla.cluster.changes import Change

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Decision(Generic[R_co]):
    """The result of a decider: the changes to append, which may be none, and a result for the caller."""

    changes: Sequence[Change]
    result: R_co
