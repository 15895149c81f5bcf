"""An app leaves the Spark session of its process as it was for everybody else."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.cli import main
from ottla.streams.errors import TopologyError
from ottla.testing import LocalBroker
from tests.spark.topics import send
from tests.streams.apps import make_app, running, wait_for_lag_zero

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_mistakes_in_queries_are_still_errors_of_python(
    spark: "SparkSession", broker: LocalBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """PySpark turns exceptions of Java into its own, also after an app has run in the process."""
    from pyspark.errors import AnalysisException, ParseException

    broker.create_topic("asked")
    broker.create_topic("asked-counts")
    send(broker, "asked", [{"key": "a", "value": "1"}])
    app = make_app(broker, tmp_path, "asking")
    asked = app.stream("asked", key="string", value="string").filter("value is not null")
    with pytest.raises(TopologyError):
        asked.select("nothing")
    asked.group_by_key().count(name="counts").to("asked-counts")
    with running(app):
        wait_for_lag_zero(broker, app, ["asked"])

    with pytest.raises(ParseException):
        spark.sql("selec")
    with pytest.raises(AnalysisException):
        spark.sql("select nothing from nowhere")
    capsys.readouterr()
    assert main(["sql", "selec", "-b", broker.bootstrap]) == 2
    assert capsys.readouterr().err == "ottla: sql: Syntax error at or near 'selec'\n"
