"""The examples that need Spark, and README's. Each compares its own result with a model, so the test only runs it.

The suite runs README's and two that its seed chooses; `make test-all` runs all of them.
"""

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.testing import LocalBroker
from tests.spark.topics import send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py") if "def main(spark: SparkSession" in path.read_text())
SNIPPET = re.compile(r"^```python\n(import ottla\.spark\n.*?)^```$", re.MULTILINE | re.DOTALL)


def test_there_are_examples() -> None:
    # The examples are the classic uses of an event log, and each is described on the page about them.
    assert len(NAMES) >= 6
    page = (ROOT / "docs" / "examples.md").read_text()
    assert [name for name in NAMES if f"(../examples/{name}.py)" not in page] == []


@pytest.mark.parametrize("name", NAMES)
def test_an_example_works(
    name: str,
    spark: "SparkSession",
    broker: LocalBroker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    example = import_module(name)
    try:
        example.main(spark, broker.bootstrap)
    finally:
        for module in (name, "stage"):
            sys.modules.pop(module, None)
    told = capsys.readouterr()
    assert told.out.count("\n") >= 1
    assert told.err == ""


def test_the_example_of_the_readme_works(
    spark: "SparkSession", ottla_broker: LocalBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The example runs unchanged except for addresses and paths, with the records that README sends before.
    (snippet,) = SNIPPET.findall((ROOT / "README.md").read_text())
    ottla_broker.create_topic("totals")
    send(ottla_broker, "orders", [{"key": "alice", "value": "10"}, {"key": "bob", "value": "20"}])
    exec(snippet.replace("localhost:9092", ottla_broker.bootstrap).replace("/tmp/totals", str(tmp_path)), {})
    rows = [line.split("|")[1:3] for line in capsys.readouterr().out.splitlines() if "alice" in line or "bob" in line]
    assert sorted((key.strip(), value.strip()) for key, value in rows) == [("alice", "10"), ("bob", "20")]
