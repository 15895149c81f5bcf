"""What goes from the first Python worker of a task to the second one beside Spark."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

from ottla.streams.rows import OFFSET, ORDER, TOPIC
from ottla.streams.running.handover import Handover, make_handover_path, receive_handover, send_handover
from ottla.streams.running.tasks import add_columns
from ottla.streams.running.work import BROKEN, Failure, Position

NO_PROCESS = 2**22 + 1
"""Above the highest process id that Linux gives."""
KEPT = pa.table({ORDER: [0, 1, 3, 4], TOPIC: ["a", "b", "d", "e"], OFFSET: [10, 11, 13, 14]})


def test_rows_get_back_the_columns_that_did_not_go_through_spark() -> None:
    """Spark drops rows and makes several of one. Place 2 is that of a bad record."""
    made = pa.table({"word": ["x", "y", "z"], ORDER: [1, 3, 3]})
    schema = pa.schema([("word", pa.string()), (ORDER, pa.int64()), (TOPIC, pa.string()), (OFFSET, pa.int64())])
    found = add_columns(made, KEPT, schema)
    assert found.schema == schema
    assert found.to_pylist() == [
        {"word": "x", ORDER: 1, TOPIC: "b", OFFSET: 11},
        {"word": "y", ORDER: 3, TOPIC: "d", OFFSET: 13},
        {"word": "z", ORDER: 3, TOPIC: "d", OFFSET: 13},
    ]


def test_a_handover_comes_as_it_was_sent(tmp_path: Path) -> None:
    place = tmp_path / "new" / "7"
    bad = pa.table({"value": [b"x"], "reason": ["no number"]})
    sent = Handover([Position(5, 1000)], bad, {2: 1000}, KEPT, KEPT.slice(1, 1))
    send_handover(str(place), sent)
    assert receive_handover(str(place)) == sent
    assert not place.exists()


def test_a_failure_comes_without_rows(tmp_path: Path) -> None:
    place = str(tmp_path / "7")
    send_handover(place, Handover(failure=Failure(BROKEN, "no broker")))
    found = receive_handover(place)
    assert (found.failure, found.kept.num_rows) == (Failure(BROKEN, "no broker"), 0)


def test_workers_of_two_daemons_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """When Spark's daemon is killed, its workers live on as children of init, beside those of the next daemon."""
    monkeypatch.setenv("OTTLA_EXECUTOR", str(os.getpid()))
    first = make_handover_path("shop", 7)
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert make_handover_path("shop", 7) == first


def test_directories_of_killed_runs_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only those of the same app, whose process is gone."""

    def make(executor: str, name: str) -> Path:
        directory = tmp_path / executor / f"ottla-handover-{name}"
        directory.mkdir(parents=True)
        (directory / "3").touch()
        return directory

    killed = make("blockmgr-1", f"shop-{NO_PROCESS}")
    kept = [
        make("blockmgr-2", f"shop-{os.getpid()}"),
        make("blockmgr-3", f"other-{NO_PROCESS}"),
        make("blockmgr-4", f"shop-2-{NO_PROCESS}"),
    ]
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / 'blockmgr-5'},{tmp_path / 'more'}")
    place = Path(make_handover_path("shop", 7))
    assert place.parent.parent == tmp_path / "blockmgr-5"

    send_handover(str(place), Handover())

    assert not killed.exists()
    assert all(each.exists() for each in (place, *kept))
