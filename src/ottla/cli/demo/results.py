"""Reads the results of the pipeline as any read_committed consumer does: while it runs, and once more at the end."""

from urllib.request import urlopen

from ottla.cli.client import CommandClient, explain
from ottla.cli.command_error import CommandError
from ottla.cli.consumer_groups import READ_COMMITTED, list_led_offsets
from ottla.cli.demo.books import Tally, tally_of
from ottla.cli.demo.topics import APP, RESULTS, REVENUE, places
from ottla.cli.offset_ranges import LATEST, OffsetRange
from ottla.cli.topic_reader import TopicReader

ROWS_MAX = 5_000
HTTP_S = 30.0


class LiveResults:
    """A consumer of the results. It counts rows and keeps the newest of every minute and category."""

    def __init__(self, client: CommandClient) -> None:
        from confluent_kafka import TopicPartition

        self._consumer = client.create_consumer({"isolation.level": "read_committed", "fetch.wait.max.ms": 100})
        self._consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in places(RESULTS)])
        self.rows = dict.fromkeys(RESULTS, 0)
        self.minutes: dict[int, dict[str, Tally]] = {}

    def turn(self, patience_s: float) -> None:
        """Read what has arrived, or wait for it until the time-out."""
        for message in self._consumer.consume(ROWS_MAX, patience_s):
            if error := message.error():
                raise CommandError(f"demo: the results cannot be read: {explain(error)}")
            topic, value = message.topic(), message.value()
            assert topic is not None
            self.rows[topic] += 1
            if topic == REVENUE and value is not None:
                minute, category, tally = tally_of(value)
                self.minutes.setdefault(minute, {})[category] = tally

    def close(self) -> None:
        self._consumer.close()


def committed_values(client: CommandClient, topic: str) -> list[bytes]:
    """All records of the topic; those of one partition are in order."""
    with client.open_own_client() as own:
        ends = list_led_offsets(own, places((topic,)), LATEST, READ_COMMITTED)
    ranges = {place: OffsetRange(0, end) for place, end in ends.items()}
    reader = TopicReader(client, ranges, follow=False)
    values = []
    while not reader.caught_up:
        values += [message.value() or b"" for message in reader.read()]
    reader.close()
    return values


def lags(client: CommandClient, topics: tuple[str, ...]) -> dict[str, int]:
    """How many records of each topic the pipeline has not read, as `ottla group describe` shows it."""
    from ottla.client.groups import fetch_offsets

    with client.open_own_client() as own:
        committed = fetch_offsets(own, APP)
        ends = list_led_offsets(own, places(topics), LATEST, READ_COMMITTED)
    found = dict.fromkeys(topics, 0)
    for place, end in ends.items():
        read = committed[place].offset if place in committed else 0
        found[place.topic] += max(end - read, 0)
    return found


def query_minutes(address: str) -> dict[tuple[int, str], Tally]:
    """Every minute of the store `revenue`, asked for over HTTP."""
    from ottla.streams.queries import Query

    return {
        (int(row["window_start"].timestamp() * 1000), row["category"]): Tally(row["orders"], row["cents"], row["views"])
        for row in Query(address, REVENUE).all()
    }


def get_minute(address: str, category: str, minute_ms: int) -> tuple[str, str]:
    """The address of one row of the store `revenue`, and what a GET request for it returns."""
    url = f"{address}/stores/{REVENUE}/{category}?window={minute_ms}"
    with urlopen(url, timeout=HTTP_S) as answer:
        return url, answer.read().decode()
