"""HttpSink: the records of topics as requests to a server.

A request may be repeated if the worker dies or its answer is lost. The header `Idempotency-Key` has the topic,
partition and offsets of its records, so that a server can recognise a repetition.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from logging import getLogger
from typing import Any, ClassVar

from ottla.connect.connector import ConnectorContext, RefusedRecord, Sink, SinkBatch, Written
from ottla.connect.connectors.http.bodies import BodyMaker
from ottla.connect.connectors.http.http_source import ask_again
from ottla.connect.connectors.http.server import parse_headers
from ottla.connect.connectors.http.settings import SINK_SETTINGS, make_server
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.conversion import columns_to_records
from ottla.connect.data.record import Record
from ottla.connect.errors import RecordError, RetriableError
from ottla.connect.settings.definition import Settings

log = getLogger(__name__)


@dataclass
class _Request:
    method: str
    url: str
    records: list[Record] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


class HttpSink(Sink):
    settings: ClassVar[Settings] = SINK_SETTINGS
    version: ClassVar[str] = "1"

    def __init__(self, config: Mapping[str, Any], context: ConnectorContext) -> None:
        super().__init__(config, context)
        self._server = make_server(config, parse_headers(config["headers"], config["header.separator"]))
        self._has_type = any(name.lower() == "content-type" for name, _ in self._server.headers)

    def write(self, batch: SinkBatch) -> Written:
        writer = _BatchWriter(self, batch)
        try:
            writer.write_all()
        except RetriableError as error:
            end = writer.find_unsent()
            if end <= batch.start:
                raise
            log.warning("%s", error)
            return Written([each for each in writer.refused if (each.record.offset or 0) < end], end)
        return Written(writer.refused)

    def send(self, maker: BodyMaker, request: _Request) -> str | None:
        """Why the server refuses the records of a request; None if it takes them."""
        more = {} if self._has_type or request.method == "DELETE" else {"Content-Type": maker.content_type}
        if header := self.config["idempotency.header"]:
            first, last = request.records[0], request.records[-1]
            more[header] = f"{first.topic}-{first.partition}-{first.offset}-{last.offset}"
        body = None if request.method == "DELETE" else maker.join(request.texts)
        answer = ask_again(self.config, self._server, request.method, request.url, body, more)
        return None if answer.is_good else f"the server refuses it ({answer.describe()})"


class _BatchWriter:
    """Writes one batch: records of one batch key and URL share requests, in their order."""

    def __init__(self, sink: HttpSink, batch: SinkBatch) -> None:
        self._sink = sink
        self._config = sink.config
        self._batch = batch
        self._maker = BodyMaker(sink.config)
        self._open: dict[tuple[str, str, str], _Request] = {}
        self._next = batch.start
        """The offset after the last record that was looked at."""
        self.refused: list[RefusedRecord] = []

    def write_all(self) -> None:
        for rows in self._batch.rows:
            for record in columns_to_records(rows) if isinstance(rows, RecordColumns) else rows:
                try:
                    self._add(record)
                except RecordError as error:
                    self.refused.append(RefusedRecord(record, str(error)))
                self._next = (record.offset or 0) + 1
        for key in list(self._open):
            self._flush(key)

    def find_unsent(self) -> int:
        """The offset of the first record that is not known to be sent."""
        waiting = [each.offset or 0 for request in self._open.values() for each in request.records]
        return min([self._next, *waiting])

    def _add(self, record: Record) -> None:
        method = self._config["request.method"].upper()
        if record.value is None:
            behavior = self._config["behavior.on.null.values"].lower()
            if behavior == "fail":
                raise RecordError("the record has no value, and behavior.on.null.values is fail")
            if behavior == "log":
                log.warning("%s-%s: the record at %s has no value", record.topic, record.partition, record.offset)
            if behavior != "delete":
                return
            method = "DELETE"
        url, batch_key = self._maker.make_url(record), self._maker.make_batch_key(record)
        text = "" if method == "DELETE" else self._maker.make_text(record)
        for key in [key for key in self._open if key[2] == batch_key and key[:2] != (method, url)]:
            self._flush(key)  # the order of the records of a batch key stays
        key = method, url, batch_key
        request = self._open.setdefault(key, _Request(method, url))
        request.records.append(record)
        request.texts.append(text)
        if method == "DELETE" or len(request.records) >= self._config["batch.max.size"]:
            self._flush(key)

    def _flush(self, key: tuple[str, str, str]) -> None:
        request = self._open[key]
        reason = self._sink.send(self._maker, request)
        del self._open[key]
        if reason is None:
            return
        behavior = self._config["behavior.on.error"].lower()
        if behavior == "fail":
            self.refused += [RefusedRecord(each, reason) for each in request.records]
        elif behavior == "log":
            log.warning("%s %s: %s", request.method, request.url.partition("?")[0], reason)
