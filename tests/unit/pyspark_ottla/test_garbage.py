"""Objects of loaded modules are excluded from the garbage collections that Spark orders after each task."""

import gc
import sys
from types import ModuleType

import pytest

from pyspark_ottla import garbage


def test_only_new_objects_are_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """This runs once for all loaded modules, again when there is another one, and not with every task."""
    done: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: done.append("collect"))
    monkeypatch.setattr(gc, "freeze", lambda: done.append("freeze"))
    monkeypatch.setattr(garbage, "_modules_kept", 0)
    garbage.freeze_loaded_modules()
    garbage.freeze_loaded_modules()
    assert done == ["collect", "freeze"]
    monkeypatch.setitem(sys.modules, "one_more", ModuleType("one_more"))
    garbage.freeze_loaded_modules()
    assert done == ["collect", "freeze"] * 2
