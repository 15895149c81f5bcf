"""Puts records and offsets into a broker, with the console's own means."""

from collections.abc import Mapping, Sequence

from ottla.client.groups import CommittedOffset, commit_offsets
from ottla.client.sending import Sender
from ottla.console.console import Console
from ottla.console.facts.sending import encode_records
from ottla.console.facts.topics import create_topic
from ottla.records.record import Headers
from ottla.topic_partition import TopicPartition

TIME = 1_700_000_000_000


def make_topic(console: Console, name: str, partitions: int = 1, **settings: str) -> str:
    with console.clients.borrow() as client:
        create_topic(client, name, partitions, 1, {key.replace("_", "."): value for key, value in settings.items()})
        client.count_partitions([name])
    console.forget()
    return name


def put(
    console: Console,
    topic: str,
    values: Sequence[bytes | None],
    *,
    partition: int = 0,
    key: bytes | None = None,
    headers: Headers = (),
    time: int = TIME,
    codec: int = 0,
) -> None:
    """One batch. The records are a millisecond apart."""
    with console.clients.borrow() as client:
        sender = Sender(client)
        records = [(key, value, headers, time + number) for number, value in enumerate(values)]
        sender.send(encode_records(topic, partition, records, codec))
        sender.flush()


def commit(console: Console, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    with console.clients.borrow() as client:
        commit_offsets(
            client,
            group,
            {TopicPartition(topic, partition): CommittedOffset(offset) for partition, offset in offsets.items()},
        )
    console.forget()
