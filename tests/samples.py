"""How much of its work a test does: a sample in `make test`, everything with OTTLA_SAMPLES=full (`make test-all`)."""

import os
from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")

FULL = os.environ.get("OTTLA_SAMPLES") == "full"


def sample_size(usual: int, full: int) -> int:
    """A number of examples, seeds or records."""
    return full if FULL else usual


def choose_sample(cases: Sequence[T], usual: int, name: str = "") -> Sequence[T]:
    """As many of the cases, in their order, as the suite's seed chooses; all of them in a full run.

    Which tests run at all is decided in `costs.py`.
    """
    if FULL or len(cases) <= usual:
        return cases
    places = Random(f"{os.environ['OTTLA_SEED']} {name}").sample(range(len(cases)), usual)
    return [cases[place] for place in sorted(places)]
