"""Committed offsets on the command line: whatever their metadata, they are shown as they were committed."""

import json
from collections.abc import Iterator
from contextlib import closing

import pytest

from ottla.cli import main
from ottla.client.client import Client
from ottla.client.groups import CommittedOffset, commit_offsets
from ottla.testing import LocalBroker
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

TOPIC = "events"
PARTITIONS = 64
ROUNDS = 10
WORDS = ("AgAAAAAAAAAA", "ÿ", "日本", "\N{CHERRY BLOSSOM}")
"""Metadata as Kafka Streams writes it (base64), and characters of two, three and four bytes in UTF-8."""


@pytest.fixture
def client(ottla_broker: LocalBroker) -> Iterator[Client]:
    ottla_broker.create_topic(TOPIC, PARTITIONS)
    with closing(Client({"bootstrap.servers": ottla_broker.bootstrap})) as client:
        yield client


def metadata_of(partition: int, number: int) -> str:
    """Metadata of every length from 0 to 63, made of one of the words. The last one has the largest length that a
    broker accepts."""
    word = WORDS[(partition + number) % len(WORDS)]
    return ("x" * 4096) if partition == PARTITIONS - 1 else (word * partition)[:partition]


def describe(capsys: pytest.CaptureFixture[str], bootstrap: str, *groups: str) -> dict[str, dict[int, str | None]]:
    assert main(["group", "describe", *groups, "--format", "json", "-b", bootstrap]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return {
        group["group"]: {row["partition"]: row["metadata"] for row in group["offsets"]}
        for group in json.loads(printed.out)
    }


def test_metadata_of_every_length_is_shown_as_it_was_committed(
    client: Client, ottla_broker: LocalBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    # A client that reads past the end of a text would find other texts there, cut within a character.
    expected: dict[str, dict[int, str | None]] = {}
    for number in range(ROUNDS):
        texts = {partition: metadata_of(partition, number) for partition in range(PARTITIONS)}
        offsets = {TopicPartition(TOPIC, partition): CommittedOffset(0, text) for partition, text in texts.items()}
        commit_offsets(client, f"group-{number}", offsets)
        expected[f"group-{number}"] = {partition: text or None for partition, text in texts.items()}
    assert describe(capsys, ottla_broker.bootstrap, *expected) == expected


def test_no_metadata_at_all_is_shown_as_none(
    client: Client, ottla_broker: LocalBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    partitions = [
        OffsetCommitRequestPartition(partition_index=partition, committed_offset=0, committed_metadata=text)
        for partition, text in enumerate([None, ""])
    ]
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)]
    client.ask_coordinator("group", "silent", OffsetCommitRequest(group_id="silent", topics=topics), version_max=9)
    assert describe(capsys, ottla_broker.bootstrap, "silent") == {"silent": {0: None, 1: None}}


def test_a_reset_begins_with_offsets_that_carry_metadata(
    client: Client, ottla_broker: LocalBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [metadata_of(partition, 1) for partition in range(PARTITIONS)]
    offsets = {TopicPartition(TOPIC, number): CommittedOffset(0, text) for number, text in enumerate(texts)}
    commit_offsets(client, "group", offsets)
    arguments = ["group", "reset", "group", "--all-topics", "--to-latest", "--format", "json"]
    assert main([*arguments, "-b", ottla_broker.bootstrap]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["partition"], row["before"], row["after"]) for row in rows] == [(n, 0, 0) for n in range(PARTITIONS)]
