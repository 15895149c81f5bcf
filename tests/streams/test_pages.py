"""What a running app tells: health, progress, metrics and answers, to those who have its token. And what it tidies up:
late rows are in the topics that it names, and a repartition topic holds nothing that was read."""

import json
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from ottla.client.backoff import now_ms
from ottla.client.client import EARLIEST, LATEST, Client
from ottla.streams.app import App
from ottla.streams.errors import StreamsError
from ottla.streams.queries import Query
from ottla.streams.running import loop
from ottla.streams.running.driver import TOKEN_VARIABLE
from ottla.streams.state.views import QueryError
from ottla.streams.windows import tumbling
from ottla.testing import LocalBroker
from ottla.topic_partition import TopicPartition
from tests.patience import PATIENCE_S
from tests.spark.topics import send
from tests.streams.apps import make_app, read_records, running, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOKEN = "open sesame"
EXCHANGE = "watched-per-ten-seconds-repartition"


@pytest.fixture(scope="module", autouse=True)
def topics(broker: LocalBroker) -> None:
    broker.create_topic("visits", partitions=2)
    broker.create_topic("late-visits", partitions=1)


def make_watched(broker: LocalBroker, directory: Path) -> App:
    """Counts by shop and ten seconds behind an exchange. Late rows go to a topic, and to the dead letters."""
    app = make_app(broker, directory, "watched", http="0.0.0.0:0", on_late="dead-letter")
    visits = app.stream("visits", value="shop string")
    by_shop = visits.group_by("shop")
    by_shop.window(tumbling("10 seconds")).count(name="per-ten-seconds", late="late-visits")
    by_shop.window(tumbling("20 seconds")).count(name="per-twenty-seconds")
    return app


def get(app: App, path: str, token: str | None = TOKEN) -> tuple[int, str]:
    """The status and the text of a page. The address that all interfaces have is not one to connect to."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        with urlopen(Request(local_address(app) + path, headers=headers), timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def local_address(app: App) -> str:
    return app.http_address.replace("0.0.0.0", "127.0.0.1")


def read_metrics(text: str) -> dict[str, float]:
    """Values by name and labels."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def add_up(app: App, prefix: str) -> float:
    """A metric, over all its labels."""
    found = read_metrics(get(app, "/metrics")[1])
    return sum(value for name, value in found.items() if name.startswith(prefix))


def test_an_app_that_others_can_reach_needs_a_token(
    spark: "SparkSession", broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with pytest.raises(StreamsError, match="an address that other machines can reach needs a token"):
        make_watched(broker, tmp_path).start()


def test_an_app_tells_how_it_is_to_those_who_have_its_token(
    spark: "SparkSession", broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages and queries need the token. Metrics count late rows, and know the size of stores. Late rows are where they
    belong, and what was read of the repartition topic is deleted."""
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    monkeypatch.setattr(loop, "PURGE_SECONDS", 0.1)
    begin = (now_ms() // 20_000 - 10) * 20_000  # retention would delete records that are old
    rows = [("a", 1_000), ("b", 2_000), ("a", 45_000), ("b", 3_000)]
    for shop, after in rows:
        send(broker, "visits", [{"value": json.dumps({"shop": shop}), "timestamp": begin + after, "partition": 0}])
    client = Client({"bootstrap.servers": broker.bootstrap})
    app = make_watched(broker, tmp_path)
    with running(app):
        wait_until(lambda: len(read_records(broker, "late-visits")) == 1, app)
        wait_until(lambda: len(read_records(broker, "watched-dead-letters")) == 1, app)
        for path in ("/health", "/metrics", "/progress", "/topology", "/stores", "/stores/per-ten-seconds/a"):
            assert get(app, path, token=None)[0] == 401
            assert get(app, path, token="wrong")[0] == 401
            assert get(app, path)[0] == 200
        with pytest.raises(QueryError, match="token"):
            Query(local_address(app), "per-ten-seconds").get("a", window=begin)
        query = Query(local_address(app), "per-ten-seconds", token=TOKEN)
        wait_until(lambda: query.get("a", window=begin + 40_000) is not None, app)

        assert json.loads(get(app, "/health")[1]) == {"app": "watched", "healthy": True, "troubles": []}
        wait_until(lambda: add_up(app, "ottla_streams_lag{") == 0, app)
        metrics = read_metrics(get(app, "/metrics")[1])
        assert add_up(app, "ottla_streams_late_rows_total{") == 2
        assert metrics['ottla_streams_store_keys{app="watched",store="per-ten-seconds"}'] >= 3  # an estimate
        assert metrics['ottla_streams_store_bytes{app="watched",store="per-ten-seconds"}'] > 0
        assert metrics['ottla_streams_store_restoring{app="watched",store="per-ten-seconds"}'] == 0

        places = {TopicPartition(EXCHANGE, number) for number in range(2)}

        def is_purged() -> bool:
            ends = client.list_offsets(dict.fromkeys(places, LATEST))
            starts = client.list_offsets(dict.fromkeys(places, EARLIEST))
            return any(end.offset for end in ends.values()) and all(
                starts[place].offset == ends[place].offset for place in places
            )

        wait_until(is_purged, app)
    client.close()
    (late,) = read_records(broker, "late-visits")
    (letter,) = read_records(broker, "watched-dead-letters")
    assert json.loads(late["value"])["shop"] == json.loads(letter["value"])["shop"] == "b"
    headers = {each["key"]: each["value"] for each in letter["headers"]}
    assert headers["__connect.errors.topic"] == b"visits"
    assert headers["__connect.errors.offset"] == b"3"
