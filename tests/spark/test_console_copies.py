"""What the console offers to copy as PySpark runs as it is."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import ottla.testing
from ottla.console.console import Console, Options
from tests.unit.console.conftest import now_ms, patient
from tests.unit.console.copied import GROUP, TOPIC, WRITTEN, make_copies
from tests.unit.console.seeding import commit, make_topic, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXPECTED = {"cluster": "127.0.0.1", "group": TOPIC, "topic": "5", "search": "|5|"}


@pytest.fixture(scope="module")
def console() -> Iterator[Console]:
    with ottla.testing.broker() as local:
        made = Console(Options(patient(local.bootstrap)), now_ms, time.monotonic)
        make_topic(made, TOPIC)
        make_topic(made, WRITTEN)
        put(made, TOPIC, [b"it's [%d]" % number for number in range(6)], key=b"k", time=now_ms())
        commit(made, GROUP, TOPIC, {0: 2})
        yield made
        made.close()


@pytest.mark.long
def test_programs_in_pyspark_run(spark: "SparkSession", console: Console, capsys: pytest.CaptureFixture[str]) -> None:
    for view, copies in make_copies(console.options).items():
        (program,) = [copy.text for copy in copies if copy.name == "PySpark"]
        exec(compile(program, view, "exec"), {"__name__": view})
        printed = capsys.readouterr().out
        assert EXPECTED.get(view, "+---" if view != "produce" else "") in printed.replace(" ", ""), (view, printed)
