"""JmsSource and ActiveMQSource: the messages of a queue or a topic, each written once.

The driver receives, because a message can only be acknowledged where it was received, and gives each task the messages
that it is to write. They are acknowledged after the task's transaction; `receiving.py` tells what is written already.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from ottla.connect.connector import (
    ConnectorContext,
    Part,
    Source,
    SourceBatch,
    SourceOffset,
    SourcePartition,
    partition_key,
)
from ottla.connect.connectors.jms.messages import to_record
from ottla.connect.connectors.jms.receiving import IDS, Receiver, read_ids
from ottla.connect.connectors.jms.session import Frame, Session
from ottla.connect.connectors.jms.settings import ACTIVEMQ_SOURCE_SETTINGS, JMS_SOURCE_SETTINGS, read_address
from ottla.connect.errors import ConnectError
from ottla.connect.settings.definition import Settings

DESTINATION: Final = "destination"
CONSUMER: Final = "consumer"


class JmsSource(Source):
    settings: ClassVar[Settings] = JMS_SOURCE_SETTINGS
    version: ClassVar[str] = "1"

    def __init__(self, config: Mapping[str, Any], context: ConnectorContext) -> None:
        super().__init__(config, context)
        self._kind: str = config["jms.destination.type"].lower()
        self._destination = f"/{self._kind}/{config['jms.destination.name']}"
        self._is_durable = bool(config["jms.subscription.durable"])
        self._address = read_address(config)
        self._receivers: list[Receiver] = []
        """They are made on the driver, after tasks got their copies of the source."""

    def stop(self) -> None:
        for each in self._receivers:
            each.close()

    def plan(self, offsets: Mapping[str, SourceOffset]) -> Sequence[Part]:
        if not self._receivers:
            # Every subscriber of a topic gets every message, so a topic has one.
            count = self.context.tasks_max if self._kind == "queue" else 1
            self._receivers = [
                Receiver(
                    self._connect,
                    self.config["batch.size"],
                    read_ids(offsets.get(partition_key(self._name_partition(number)))),
                )
                for number in range(count)
            ]
        committed = _find_committed(offsets)
        parts = []
        for number, receiver in enumerate(self._receivers):
            frames = receiver.collect(committed)
            if frames:
                work = {"messages": [_to_json(each) for each in frames], IDS: receiver.list_ids(frames)}
                parts.append(Part(self._name_partition(number), work))
        return parts

    def read(self, part: Part, offset: SourceOffset | None) -> Iterator[SourceBatch]:
        topic, encoding = self.config["kafka.topic"], self.config["character.encoding"]
        rows = [to_record(topic, headers, base64.b64decode(body), encoding) for headers, body in part.work["messages"]]
        yield SourceBatch([rows], {IDS: part.work[IDS]})

    def after_commit(self, offsets: Mapping[str, SourceOffset]) -> None:
        committed = _find_committed(offsets)
        for each in self._receivers:
            each.settle(committed)

    def check_offset(self, partition: SourcePartition, offset: SourceOffset | None) -> None:
        if offset is not None:
            raise ConnectError(
                "the broker knows which messages come next; the offsets of this connector can only be reset, which"
                " forgets the ids of messages whose acknowledgement may have been lost"
            )

    def _name_partition(self, number: int) -> dict[str, Any]:
        return {DESTINATION: self._destination, CONSUMER: number}

    def _connect(self) -> Session:
        config = self.config
        if not self._is_durable:
            session = Session(self._address)
            session.subscribe(self._destination, config["jms.message.selector"], config["max.pending.messages"], None)
            return session
        session = Session(self._address, config["jms.client.id"] or self.context.name)
        name = config["jms.subscription.name"]
        session.subscribe(self._destination, config["jms.message.selector"], config["max.pending.messages"], name)
        return session


class ActiveMQSource(JmsSource):
    settings: ClassVar[Settings] = ACTIVEMQ_SOURCE_SETTINGS


def _find_committed(offsets: Mapping[str, SourceOffset]) -> set[str]:
    return {each for offset in offsets.values() for each in read_ids(offset)}


def _to_json(frame: Frame) -> list[Any]:
    return [dict(frame.headers), base64.b64encode(frame.body).decode()]
