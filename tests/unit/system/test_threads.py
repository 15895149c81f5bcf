"""Loading of libraries while a broker serves requests."""

import gc
import sys
from collections.abc import Iterator

import pytest

from ottla.system.threads import LOADING_SWITCH_S, load_library


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_loading_does_not_block_other_threads() -> None:
    # Meanwhile the garbage collector is off and threads switch often. Afterwards everything is as before.
    before = sys.getswitchinterval()

    def load() -> tuple[bool, float]:
        return gc.isenabled(), sys.getswitchinterval()

    collecting, interval = load_library(load)
    assert not collecting and interval == pytest.approx(LOADING_SWITCH_S)
    assert gc.isenabled() and sys.getswitchinterval() == before


def test_loaded_objects_are_excluded_from_garbage_collection() -> None:
    gc.unfreeze()
    kept: list[list[int]] = load_library(lambda: [[] for _ in range(1000)])
    assert gc.get_freeze_count() > len(kept)


def test_a_library_that_cannot_be_loaded_leaves_nothing_changed() -> None:
    before = sys.getswitchinterval()
    with pytest.raises(ZeroDivisionError):
        load_library(lambda: 1 // 0)
    assert gc.isenabled() and sys.getswitchinterval() == before


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        load_library(int)
        assert not gc.isenabled()
    finally:
        gc.enable()
