"""How code is loaded while a broker answers."""

import gc
import sys
from collections.abc import Iterator

import pytest

from ottla.system.threads import LOADING_SWITCH_S, load_library


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_loading_holds_nobody_up() -> None:
    # Meanwhile nobody looks for garbage, and the interpreter changes hands often; afterwards all is as it was.
    before = sys.getswitchinterval()

    def load() -> tuple[bool, float]:
        return gc.isenabled(), sys.getswitchinterval()

    collecting, interval = load_library(load)
    assert not collecting and interval == pytest.approx(LOADING_SWITCH_S)
    assert gc.isenabled() and sys.getswitchinterval() == before


def test_what_was_loaded_is_never_searched_for_garbage() -> None:
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
