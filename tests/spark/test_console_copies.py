"""What the console offers to copy as PySpark runs as it is."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import ottla.testing
from ottla.console.console import Console, Options
from ottla.console.snippets import variable_of
from tests.unit.console.conftest import now_ms, patient
from tests.unit.console.copied import GROUP, TOPIC, WRITTEN, make_copies
from tests.unit.console.seeding import commit, make_topic, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXPECTED = {"cluster": "127.0.0.1", "group": TOPIC, "topic": "5", "search": "|5|", "access": "User:ann"}


@pytest.fixture(scope="module")
def console() -> Iterator[Console]:
    from ottla.console.facts.access import Acl, create_acl

    with ottla.testing.broker(security="sasl_plaintext", acls=True) as local:
        made = Console(Options({**patient(local.bootstrap), **local.client_settings}), now_ms, time.monotonic)
        with made.clients.borrow() as client:
            create_acl(client, Acl(2, "t", 3, "User:ann", "*", 3, 3))
        make_topic(made, TOPIC)
        make_topic(made, WRITTEN)
        put(made, TOPIC, [b"it's [%d]" % number for number in range(6)], key=b"k", time=now_ms())
        commit(made, GROUP, TOPIC, {0: 2})
        yield made
        made.close()


@pytest.mark.long
def test_programs_in_pyspark_run(
    spark: "SparkSession", console: Console, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable_of("sasl.password"), console.options.settings["sasl.password"])
    for view, copies in make_copies(console.options).items():
        (program,) = [copy.text for copy in copies if copy.name == "PySpark"]
        exec(compile(program, view, "exec"), {"__name__": view})
        printed = capsys.readouterr().out
        assert EXPECTED.get(view, "+---" if view != "produce" else "") in printed.replace(" ", ""), (view, printed)
