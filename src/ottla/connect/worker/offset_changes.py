"""Reads and changes the offsets of a connector for its user. Those of a source are in the offsets topic, those of a
sink are committed by its group.

Changes are made for connectors that are stopped. Whoever wrote their offsets before is fenced first, so that a run that
was paused in the middle of a transaction cannot undo the change.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

from ottla.client.client import Client
from ottla.client.groups import CommittedOffset, commit_offsets, fetch_offsets, group_by_topic, raise_for_errors
from ottla.client.sending import Sender
from ottla.client.transactions import TIMEOUT_MS, end_transaction
from ottla.connect.connector import ConnectorContext
from ottla.connect.running.ownership import Ownership
from ottla.connect.worker.herder import BadRequest, ConnectorOffset, ConnectorType
from ottla.connect.worker.offsets import SourceOffsets
from ottla.connect.worker.topics import encode_records
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

TOPIC, PARTITION, OFFSET = "kafka_topic", "kafka_partition", "kafka_offset"


def name_sink_group(name: str, config: Mapping[str, str]) -> str:
    """The group that commits the offsets of a sink."""
    return config.get("consumer.override.group.id") or f"connect-{name}"


class OffsetChanges:
    """For several threads: each call has a client of its own."""

    def __init__(self, make_client: Callable[[], Client], topic: str, worker_group: str) -> None:
        self._make_client = make_client
        self._topic = topic
        self._worker_group = worker_group

    def read(self, name: str, config: Mapping[str, str], kind: ConnectorType) -> list[ConnectorOffset]:
        with closing(self._make_client()) as client:
            if kind != "sink":
                return [ConnectorOffset(*each) for each in self._read_source(client).list_offsets(name)]
            found = fetch_offsets(client, name_sink_group(name, config))
            return [
                ConnectorOffset({PARTITION: where.partition, TOPIC: where.topic}, {OFFSET: each.offset})
                for where, each in sorted(found.items())
            ]

    def alter(
        self, name: str, config: Mapping[str, str], kind: ConnectorType, offsets: Sequence[ConnectorOffset]
    ) -> None:
        """Raises BadRequest for offsets that are not in the form of the connector."""
        sink_offsets = read_sink_offsets(offsets) if kind == "sink" else {}
        with closing(self._make_client()) as client:
            if kind == "sink":
                self._alter_sink(client, name, config, sink_offsets)
            else:
                self._alter_source(client, name, offsets)

    def reset(self, name: str, config: Mapping[str, str], kind: ConnectorType) -> None:
        """Forget all offsets: the connector begins as if it were new."""
        found = [ConnectorOffset(each.partition, None) for each in self.read(name, config, kind)]
        if found:
            self.alter(name, config, kind, found)

    def _read_source(self, client: Client) -> SourceOffsets:
        stored = SourceOffsets(client, self._topic)
        stored.refresh()
        return stored

    def _shut_out_runs(self, client: Client, name: str) -> Ownership:
        context = ConnectorContext(name, self._worker_group, 1, client.raw_settings)
        ownership = Ownership(client, context, TIMEOUT_MS)
        ownership.claim()
        return ownership

    def _alter_source(self, client: Client, name: str, offsets: Sequence[ConnectorOffset]) -> None:
        ownership = self._shut_out_runs(client, name)
        producer = ownership.start_task(0)
        stored = self._read_source(client)
        records = [(stored.find_key(name, each.partition), each.offset) for each in offsets]
        sender = Sender(client, producer)
        sender.send_all(encode_records(client, self._topic, records))
        sender.flush()
        end_transaction(client, producer, commit=True)

    def _alter_sink(
        self,
        client: Client,
        name: str,
        config: Mapping[str, str],
        offsets: Mapping[TopicPartition, int | None],
    ) -> None:
        group = name_sink_group(name, config)
        self._shut_out_runs(client, name)
        kept = {where: CommittedOffset(offset) for where, offset in offsets.items() if offset is not None}
        if kept:
            commit_offsets(client, group, kept)
        removed = group_by_topic({where: None for where, offset in offsets.items() if offset is None})
        if removed:
            topics = [
                OffsetDeleteRequestTopic(
                    name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in numbers]
                )
                for topic, numbers in removed.items()
            ]
            answer = client.ask_coordinator("group", group, OffsetDeleteRequest(group_id=group, topics=topics))
            raise_for_errors(answer, f"cannot delete offsets of group {group!r}")


def read_sink_offsets(offsets: Sequence[ConnectorOffset]) -> dict[TopicPartition, int | None]:
    """BadRequest unless every partition and offset has the form that a sink has. Numbers may be given as text."""
    found: dict[TopicPartition, int | None] = {}
    for each in offsets:
        topic, partition = each.partition.get(TOPIC), _read_number(each.partition.get(PARTITION))
        if not isinstance(topic, str) or partition is None or len(each.partition) != 2:
            raise BadRequest(f'a partition of a sink is {{"{TOPIC}": "name", "{PARTITION}": 0}}, not {each.partition}')
        offset = None if each.offset is None else _read_number(each.offset.get(OFFSET))
        if each.offset is not None and (offset is None or len(each.offset) != 1):
            raise BadRequest(f'an offset of a sink is {{"{OFFSET}": 0}} or null, not {each.offset}')
        found[TopicPartition(topic, partition)] = offset
    return found


def _read_number(given: Any) -> int | None:
    if isinstance(given, str) and given.isdecimal():
        return int(given)
    return given if isinstance(given, int) and not isinstance(given, bool) and given >= 0 else None
