"""Reads records as a member of a consumer group, and commits what `ottla consume` has printed."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.cli.client import CommandClient, explain, to_command_error
from ottla.cli.command_error import CommandError
from ottla.cli.topic_reader import GLANCE_S, RECORDS_MAX, SETTINGS, find_place, locate
from ottla.topic_partition import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message
    from confluent_kafka import TopicPartition as Place

INTERNAL = "^__consumer_offsets$,^__transaction_state$,^__share_group_state$"
POLL_INTERVAL_MS = 300_000
"""A member that does not ask for records for so long, because its output is blocked, loses its partitions to others."""


class GroupReader:
    """A member of the group. Partitions come and go with rebalances; before one goes, what was printed is committed."""

    def __init__(self, client: CommandClient, group: str, topics: Sequence[str], isolation: str) -> None:
        """A topic that begins with ^ is a regular expression."""
        self._client = client
        self._group = group
        self._assigned: set[TopicPartition] = set()
        self._is_member = False
        self._at_end: set[TopicPartition] = set()
        self._done: dict[TopicPartition, int] = {}
        """The offset after the last printed record, by partition; those that are not committed yet."""
        settings = {**SETTINGS, "group.id": group, "enable.auto.offset.store": False, "isolation.level": isolation}
        settings |= {"max.poll.interval.ms": POLL_INTERVAL_MS, "topic.blacklist": INTERNAL}
        self._consumer = client.create_consumer(settings)
        self._consumer.subscribe(list(topics), on_assign=self._take, on_revoke=self._give_back, on_lost=self._lose)

    @property
    def caught_up(self) -> bool:
        """Whether every partition that the group has assigned was read up to its end. False before the first
        assignment."""
        return self._is_member and self._assigned <= self._at_end

    @property
    def is_idle(self) -> bool:
        """Whether other members have all partitions."""
        return self._is_member and not self._assigned

    def read(self) -> "list[Message]":
        from confluent_kafka import KafkaError, KafkaException

        try:
            first = self._consumer.poll(GLANCE_S)
            arrived = [] if first is None else [first, *self._consumer.consume(RECORDS_MAX, 0)]
        except KafkaException as error:
            raise to_command_error(error, f"group {self._group!r}") from None
        if not arrived and not self._is_member and time.monotonic() > self._client.connection_errors.give_up_at_s:
            raise self._client.explain_no_broker(self._client.connection_errors.latest)
        found = []
        for message in arrived:
            event = message.error()
            if event is None:
                self._at_end.discard(find_place(message))
                found.append(message)
            elif event.code() == KafkaError._PARTITION_EOF:
                self._at_end.add(find_place(message))
            elif event.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise self._client.explain_no_topic(message.topic() or "")
            else:
                raise CommandError(f"group {self._group!r}: {explain(event)}")
        if found:
            self._client.connection_errors.clear()
        return found

    def mark_done(self, messages: "Sequence[Message]") -> None:
        """Commit them, without waiting for the answer."""
        for message in messages:
            self._done[find_place(message)] = locate(message)[1] + 1
        self._commit(wait=False)

    def close(self) -> None:
        """Commit what was printed, and leave the group."""
        try:
            self._commit(wait=True)
        finally:
            self._consumer.close()

    def _commit(self, *, wait: bool) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka import TopicPartition as Place

        if not self._done:
            return
        offsets = [Place(*where, offset) for where, offset in self._done.items()]
        try:
            if wait:
                self._consumer.commit(offsets=offsets, asynchronous=False)
                self._done.clear()
            else:
                self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            raise to_command_error(error, f"group {self._group!r}: what was printed cannot be committed") from None

    def _take(self, _: "Consumer", places: "list[Place]") -> None:
        self._is_member = True
        self._assigned |= {TopicPartition(place.topic, place.partition) for place in places}

    def _give_back(self, _: "Consumer", places: "list[Place]") -> None:
        self._commit(wait=True)
        self._forget(places)

    def _lose(self, _: "Consumer", places: "list[Place]") -> None:
        """Another member has them already: nothing can be committed."""
        self._done.clear()
        self._forget(places)

    def _forget(self, places: "list[Place]") -> None:
        gone = {TopicPartition(place.topic, place.partition) for place in places}
        self._assigned -= gone
        self._at_end -= gone
