"""One SparkContext for all connectors of a worker, made before anybody needs it."""

import threading
from typing import Any

import pytest

from ottla.connect.running import contexts
from ottla.connect.running.contexts import SharedContext
from tests.connect.runs import wait_until
from tests.patience import PATIENCE_S


def get(shared: SharedContext) -> Any:
    return shared.get()


def test_a_context_is_begun_early_and_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks while it is made waits for it."""
    may_end, calls = threading.Event(), []

    def create(name: str, master: str, config: dict[str, str]) -> Any:
        calls.append((name, master, config))
        assert may_end.wait(PATIENCE_S)
        return "the context"

    monkeypatch.setattr(contexts, "create_context", create)
    shared = SharedContext("worker", {"spark.master": "local[3]", "spark.ui.enabled": "false", "group.id": "g"})
    shared.begin()
    threading.Timer(0.05, may_end.set).start()
    assert get(shared) == get(shared) == "the context"
    assert calls == [("worker", "local[3]", {"spark.ui.enabled": "false"})]


def test_a_context_that_nobody_waits_for_runs_a_first_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python is started for the first connector before there is one."""
    may_end = threading.Event()
    warmed: list[str] = []

    def create(name: str, *_: object) -> Any:
        assert may_end.wait(PATIENCE_S)
        return name

    monkeypatch.setattr(contexts, "create_context", create)
    monkeypatch.setattr(contexts, "warm_up", warmed.append)
    before = {*threading.enumerate()}
    for name in ("waited for", "idle"):
        shared = SharedContext(name, {})
        shared.begin()
        if name == "waited for":
            threading.Thread(target=shared.get).start()
            wait_until(lambda shared=shared: shared._is_wanted)  # type: ignore[misc]
    may_end.set()
    for thread in {*threading.enumerate()} - before:
        thread.join(PATIENCE_S)
    assert warmed == ["idle"]


def test_what_goes_wrong_is_told_to_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """And tried again each time."""
    answers = iter([RuntimeError("no Java"), RuntimeError("no Java"), "the context"])
    has_failed = threading.Event()

    def create(name: str, master: str, config: dict[str, str]) -> Any:
        answer = next(answers)
        has_failed.set()
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(contexts, "create_context", create)
    shared = SharedContext("worker", {})
    shared.begin()
    assert has_failed.wait(PATIENCE_S)
    with pytest.raises(RuntimeError, match="no Java"):
        shared.get()
    assert get(shared) == "the context"
    made: Any = "another"
    given = SharedContext("worker", {}, made)
    given.begin()
    assert get(given) == "another"
