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
from ottla.connect.connector import Connector, ConnectorContext, Sink, Source
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


MakeConnector = Callable[[str, Mapping[str, str]], Connector]
"""Makes a connector from its name and its configuration as the user gave it."""


class OffsetChanges:
    """For several threads: each call has a client of its own."""

    def __init__(
        self, make_client: Callable[[], Client], make_connector: MakeConnector, topic: str, worker_group: str
    ) -> None:
        self._make_client = make_client
        self._make_connector = make_connector
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
    ) -> bool:
        """Whether the connector's target has the new offsets too; False if it is not known to keep any.

        Raises BadRequest for offsets that are not in the form of a sink, ConnectError for those that the connector
        refuses.
        """
        if kind == "sink":
            return self._alter_sink(name, config, read_sink_offsets(offsets))
        connector = self._make_connector(name, config)
        assert isinstance(connector, Source)
        for each in offsets:
            connector.check_offset(each.partition, each.offset)
        with closing(self._make_client()) as client:
            self._alter_source(client, name, offsets)
        return True

    def reset(self, name: str, config: Mapping[str, str], kind: ConnectorType) -> bool:
        """Forget all offsets: the connector begins as if it were new. Returns what `alter` returns."""
        if kind != "sink":
            found = [ConnectorOffset(each.partition, None) for each in self.read(name, config, kind)]
            return not found or self.alter(name, config, kind, found)
        with closing(self._make_client()) as client:
            committed = fetch_offsets(client, name_sink_group(name, config))
            subscribed = _list_subscribed(client, config)
        return self._alter_sink(name, config, dict.fromkeys([*committed, *subscribed]))

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

    def _alter_sink(self, name: str, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """The target comes first: what it keeps wins, so a user who repeats a change that was cut off completes it."""
        sink = self._make_connector(name, config)
        assert isinstance(sink, Sink)
        with closing(self._make_client()) as client:
            self._shut_out_runs(client, name)
            try:
                sink.start()
                is_altered = sink.alter_positions(offsets)
            finally:
                sink.stop()
            self._commit(client, name_sink_group(name, config), offsets)
        return is_altered

    def _commit(self, client: Client, group: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        kept = {where: CommittedOffset(offset) for where, offset in offsets.items() if offset is not None}
        if kept:
            commit_offsets(client, group, kept)
        committed = fetch_offsets(client, group) if None in offsets.values() else {}
        removed = group_by_topic({where: None for where in committed if offsets.get(where, 0) is None})
        if removed:
            topics = [
                OffsetDeleteRequestTopic(
                    name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in numbers]
                )
                for topic, numbers in removed.items()
            ]
            answer = client.ask_coordinator("group", group, OffsetDeleteRequest(group_id=group, topics=topics))
            raise_for_errors(answer, f"cannot delete offsets of group {group!r}")


def _list_subscribed(client: Client, config: Mapping[str, str]) -> list[TopicPartition]:
    """The partitions that a sink reads: its target may keep offsets that were never committed to the group."""
    topics = {each.strip() for each in config.get("topics", "").split(",") if each.strip()}
    found = client.count_partitions(pattern=config.get("topics.regex") or ".*")
    wanted = {topic: count for topic, count in found.items() if not topics or topic in topics}
    return [TopicPartition(topic, number) for topic, count in wanted.items() for number in range(count)]


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
