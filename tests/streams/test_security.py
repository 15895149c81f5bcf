"""An app of Streams logs in over TLS at a broker with access control."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.client.client import Client
from ottla.streams.app import App
from ottla.testing import LocalBroker
from tests.spark.test_security import count, name_options, secured
from tests.streams.apps import is_read, running, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["secured"]


def test_an_app_of_streams_logs_in(spark: "SparkSession", secured: LocalBroker, tmp_path: Path) -> None:
    """With its state server, which has the login from its standard input and not from its command line."""
    secured.create_topic("said")
    secured.create_topic("totals")
    rows = spark.createDataFrame([(word,) for word in ("a", "b", "a")], "value string")
    rows.write.format("ottla").mode("append").options(**name_options(secured.client_settings), topic="said").save()
    settings = {name: value for name, value in secured.client_settings.items() if name != "bootstrap.servers"}
    app = App(
        "secured-words",
        bootstrap=secured.bootstrap,
        master="local[2]",
        interval_ms=0,
        state_dir=str(tmp_path),
        settings=settings,
    )
    app.stream("said", value="string").group_by("value").count(name="counts").to("totals")
    with running(app), closing(Client(secured.client_settings)) as client:
        wait_until(lambda: is_read(client, "secured-words", ["said"]), app)
        wait_until(lambda: count(secured, "totals") >= 2, app)
