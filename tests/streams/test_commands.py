"""`ottla stream`: apps are listed, described, queried, stopped and reset by their names."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from ottla.cli import main
from ottla.cli.command_error import CommandError
from ottla.cli.stream.running import find_app
from ottla.client.client import Client
from ottla.testing import LocalBroker
from tests.patience import PATIENCE_S
from tests.spark.topics import send
from tests.streams.apps import make_app, wait_for_lag_zero

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_an_app_is_seen_stopped_and_reset_from_outside(
    spark: "SparkSession", broker: LocalBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str, status: int = 0) -> str:
        assert main(["stream", *words, "--bootstrap", broker.bootstrap]) == status
        printed = capsys.readouterr()
        return printed.err if status else printed.out

    def read_states() -> dict[str, str]:
        return {each["app"]: each["state"] for each in json.loads(run("list", "--format", "json"))}

    broker.create_topic("purchases", partitions=1)
    app = make_app(broker, tmp_path, "commanded")
    app.stream("purchases", key="string", key_column="shop", value="string").group_by_key().count(name="sold")

    def wait_and_stop() -> None:
        app.wait(PATIENCE_S)
        app.stop()

    app.start()
    ending = Thread(target=wait_and_stop)
    ending.start()
    try:
        send(broker, "purchases", [{"key": shop, "value": "x"} for shop in "aab"])
        wait_for_lag_zero(broker, app, ["purchases"])

        assert read_states()["commanded"] == "running"
        assert "commanded-sold-changelog" in run("describe", "commanded")
        assert json.loads(run("query", "commanded", "sold", "a", "--format", "json")) == [{"shop": "a", "count": 2}]
        rows = json.loads(run("query", "commanded", "sold", "--format", "json"))
        assert sorted((row["shop"], row["count"]) for row in rows) == [("a", 2), ("b", 1)]
        assert "store 'sold' has no key 'c'" in run("query", "commanded", "sold", "c", status=1)
        assert "is running; stop it first" in run("reset", "commanded", status=1)
        assert run("stop", "commanded") == "app 'commanded' stopped\n"
    finally:
        ending.join()
    assert read_states()["commanded"] == "stopped"
    assert "is not running (stopped)" in run("stop", "commanded", status=1)

    assert "would delete topic commanded-sold-changelog" in run("reset", "commanded", "--dry-run")
    assert has_topic(broker, "commanded-sold-changelog")
    assert "deleted topic commanded-sold-changelog" in run("reset", "commanded")
    assert not has_topic(broker, "commanded-sold-changelog")
    assert "commanded" not in read_states()
    assert "app 'commanded' is not registered" in run("describe", "commanded", status=1)


def has_topic(broker: LocalBroker, topic: str) -> bool:
    client = Client({"bootstrap.servers": broker.bootstrap})
    try:
        return client.has_topic(topic)
    finally:
        client.close()


@pytest.mark.parametrize(
    ("lines", "name", "reason"),
    [
        (["x = 1"], None, "no variable of the file is an App"),
        (["from ottla.streams import App", "a = App('a')", "b = App('b')"], None, "there are several apps: a, b"),
        (["from ottla.streams import App", "a = App('a')"], "b", "there is no app 'b'; there are: a"),
        (["def"], None, "not a Python program"),
        (["1 / 0"], None, "ZeroDivisionError: division by zero"),
    ],
)
def test_a_file_must_make_the_app_that_is_to_run(
    spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lines: Sequence[str],
    name: str | None,
    reason: str,
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    path = tmp_path / "app.py"
    path.write_text("\n".join(lines))
    with pytest.raises(CommandError, match=reason):
        find_app(str(path), name)
