"""What goes from the first Python worker of a task to the second one beside Spark."""

from pathlib import Path

import pyarrow as pa

from ottla.streams.rows import OFFSET, ORDER, TOPIC
from ottla.streams.running.handover import Handover, receive_handover, send_handover
from ottla.streams.running.tasks import add_columns
from ottla.streams.running.work import BROKEN, Failure, Position

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
