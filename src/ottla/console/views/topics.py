"""The list of topics, and a new topic."""

from typing import NamedTuple

from starlette.responses import Response

from ottla.client.client import EARLIEST, LATEST, Client
from ottla.console import copying
from ottla.console.calls import BadInput, Call, parse_number
from ottla.console.console import Console, has_many_groups
from ottla.console.facts.groups import GroupIndex, Offsets, lag_of, read_offsets
from ottla.console.facts.metadata import TopicState
from ottla.console.facts.offsets import list_offsets
from ottla.console.facts.topics import BROKER_DEFAULT, create_topic
from ottla.console.rendering import quote_segment
from ottla.console.sampling import ENDS
from ottla.console.views.listing import make_listing
from ottla.topic_partition import TopicPartition

PARTITIONS_MAX = 10_000
REPLICAS_MAX = 32_767
READERS_MAX = 400
"""Groups whose offsets are read for one page."""


class TopicRow(NamedTuple):
    topic: TopicState
    records: int | None
    bytes: int | None
    rate: float | None
    groups: list[str]
    lag: int | None


def show(call: Call) -> Response:
    console = call.console
    snapshot = console.metadata.get()
    disks = console.disks.get()
    sizes: dict[str, int] = {}
    for where, copies in disks.copies.items():
        sizes[where.topic] = sizes.get(where.topic, 0) + max(copy.bytes for copy in copies)
    internal = call.text("internal") == "1"
    wanted = [
        topic for topic in snapshot.topics.values() if internal or not (topic.is_internal or topic.name[:2] == "__")
    ]
    listing = make_listing(
        call,
        wanted,
        lambda topic: topic.name,
        {
            "name": lambda topic: topic.name,
            "partitions": lambda topic: len(topic.partitions),
            "replicas": lambda topic: topic.replication,
            "size": lambda topic: sizes.get(topic.name, 0),
            "rate": lambda topic: console.history.rate(ENDS, topic.name) or 0.0,
        },
    )
    index = console.index.get()
    places = [TopicPartition(topic.name, part.number) for topic in listing.rows for part in topic.partitions]
    with console.clients.borrow() as client:
        first = list_offsets(client, snapshot, places, EARLIEST)
        end = list_offsets(client, snapshot, places, LATEST)
        offsets = _read_offsets(console, client, index, [topic.name for topic in listing.rows])
    rows = []
    now_ms = console.now_ms()
    for topic in listing.rows:
        console.history.want(ENDS, topic.name, now_ms)
        parts = [TopicPartition(topic.name, part.number) for part in topic.partitions]
        known = [end[where] - first[where] for where in parts if where in end and where in first]
        readers = index.readers.get(topic.name, [])
        rows.append(
            TopicRow(
                topic,
                sum(known) if known else None,
                sizes.get(topic.name),
                console.history.rate(ENDS, topic.name),
                readers,
                _find_lag(offsets, readers, topic.name, end) if readers else None,
            )
        )
    return call.page(
        "topics.html",
        listing=listing._replace(rows=rows),  # type: ignore[arg-type]
        internal=internal,
        hidden=len(snapshot.topics) - len(wanted),
        brokers=len(snapshot.brokers),
        copies=copying.copy_topics(console.options, internal),
    )


def _read_offsets(console: Console, client: Client, index: GroupIndex, topics: list[str]) -> dict[str, Offsets]:
    """Of the groups that read these topics. Those of the index are too old where there are many groups."""
    if not has_many_groups(index.groups):
        return index.offsets
    readers = {name for topic in topics for name in index.readers.get(topic, ())}
    if len(readers) > READERS_MAX:
        return index.offsets
    return read_offsets(client, [index.groups[name] for name in sorted(readers)])


def _find_lag(offsets: dict[str, Offsets], readers: list[str], topic: str, end: dict[TopicPartition, int]) -> int:
    """The largest lag among the groups that read the topic."""
    return max(
        sum(lag_of(each, end.get(where)) or 0 for where, each in offsets.get(name, {}).items() if where.topic == topic)
        for name in readers
    )


def create(call: Call) -> Response:
    name = call.field("name").strip()
    if not name:
        raise BadInput("name the topic")
    partitions, replicas = call.field("partitions"), call.field("replicas")
    settings = parse_settings(call.field("settings"))
    with call.console.clients.borrow() as client:
        create_topic(
            client,
            name,
            parse_number(partitions, "partitions", 1, PARTITIONS_MAX) if partitions else BROKER_DEFAULT,
            parse_number(replicas, "replicas", 1, REPLICAS_MAX) if replicas else BROKER_DEFAULT,
            settings,
        )
        call.console.forget()
        client.count_partitions([name])  # waits until brokers know it
    return call.redirect(f"/topics/{quote_segment(name)}", f"Topic {name} is created.")


def parse_settings(text: str) -> dict[str, str]:
    """Lines of key=value."""
    found = {}
    for line in text.splitlines():
        if line.strip():
            key, equals, value = line.partition("=")
            if not equals or not key.strip():
                raise BadInput(f"{line.strip()!r} is not key=value")
            found[key.strip()] = value.strip()
    return found
