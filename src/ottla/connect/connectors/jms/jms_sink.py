"""JmsSink and ActiveMQSink: the records of topics as messages of a queue or a topic.

The messages of a batch are sent in one transaction of the broker. If the worker dies after it and before the offsets
are committed, they are sent once more: a JMS broker keeps no offsets. Artemis recognises a message that is repeated by
its duplicate id, which is the topic, partition and offset of the record. It would refuse a whole transaction that
repeats one message, so it gets messages one by one, and no more than it remembers.
"""

import functools
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from ottla.client.backoff import now_ms
from ottla.connect.connector import ConnectorContext, RefusedRecord, Sink, SinkBatch, Written
from ottla.connect.connectors.jms.messages import FrameMaker
from ottla.connect.connectors.jms.session import BrokerAddress, Frame, Session
from ottla.connect.connectors.jms.settings import ACTIVEMQ_SINK_SETTINGS, JMS_SINK_SETTINGS, read_address
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.conversion import columns_to_records
from ottla.connect.data.record import Record
from ottla.connect.errors import ConnectError, RecordError
from ottla.connect.settings.definition import Settings

REMEMBERED_MAX: Final = 1000
"""Messages of a topic partition that are sent to Artemis before their offsets are committed. It remembers the last
20,000 duplicate ids of an address by default."""


class JmsSink(Sink):
    settings: ClassVar[Settings] = JMS_SINK_SETTINGS
    version: ClassVar[str] = "1"

    def __init__(self, config: Mapping[str, Any], context: ConnectorContext) -> None:
        super().__init__(config, context)
        self._address = read_address(config)
        self._destination = f"/{config['jms.destination.type'].lower()}/{config['jms.destination.name']}"

    def start(self) -> None:
        Session(self._address).close()  # says at once if the broker refuses the user

    def write(self, batch: SinkBatch) -> Written:
        session = _connect(self._address)
        maker = FrameMaker(self.config)
        refused: list[RefusedRecord] = []
        frames: list[Frame] = []
        end = None
        now = now_ms()
        for record in _list_records(batch):
            if session.is_artemis and len(frames) == REMEMBERED_MAX:
                end = record.offset
                break
            try:
                frames.append(maker.make(record, session.is_classic, now))
            except RecordError as error:
                refused.append(RefusedRecord(record, str(error)))
        if frames:
            send = session.send_each if session.is_artemis else session.send_all
            try:
                send(self._destination, frames)
            except ConnectError:
                _connect.cache_clear()
                raise
        return Written(refused, end)


class ActiveMQSink(JmsSink):
    settings: ClassVar[Settings] = ACTIVEMQ_SINK_SETTINGS


def _list_records(batch: SinkBatch) -> Iterator[Record]:
    for rows in batch.rows:
        yield from columns_to_records(rows) if isinstance(rows, RecordColumns) else rows


@functools.lru_cache(maxsize=8)
def _connect(address: BrokerAddress) -> Session:
    """The session of a process."""
    return Session(address)
