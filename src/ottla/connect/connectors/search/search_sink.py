"""ElasticsearchSink: the records of topics as documents of Elasticsearch or OpenSearch."""

from collections.abc import Iterator, Mapping, Sequence
from logging import getLogger
from typing import Any, ClassVar

import orjson

from ottla.connect.connector import ConnectorContext, RefusedRecord, Sink, SinkBatch, Written
from ottla.connect.connectors.search.bulk import Operation, cut, list_malformed, make_operation, name_index
from ottla.connect.connectors.search.cluster import SearchCluster
from ottla.connect.connectors.search.mappings import make_mapping
from ottla.connect.connectors.search.settings import SINK_SETTINGS
from ottla.connect.converters.choice import make_converter
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.conversion import columns_to_records
from ottla.connect.data.record import Record
from ottla.connect.data.schema import Schema, Type
from ottla.connect.errors import ConnectError, RecordError
from ottla.connect.settings.definition import Settings

log = getLogger(__name__)


class ElasticsearchSink(Sink):
    settings: ClassVar[Settings] = SINK_SETTINGS
    version: ClassVar[str] = "1"

    def __init__(self, config: Mapping[str, Any], context: ConnectorContext) -> None:
        super().__init__(config, context)
        self._cluster = SearchCluster.of(config)
        self._on_null = config["behavior.on.null.values"].lower()
        self._on_malformed = config["behavior.on.malformed.documents"].lower()
        self._is_upsert = config["write.method"].lower() == "upsert"
        self._mapped: set[str] = set()
        """Indices that exist."""

    def start(self) -> None:
        status, answer = self._cluster.ask("GET", "/")
        if status != 200 or not isinstance(answer, dict) or "version" not in answer:
            raise ConnectError(f"connection.url: {self._cluster.urls[0]} is no search cluster (status {status})")

    def write(self, batch: SinkBatch) -> Written:
        refused: list[RefusedRecord] = []
        operations: list[Operation] = []
        for rows in batch.rows:
            for record, document in self._list_documents(rows, refused):
                try:
                    operations.append(self._make_operation(record, document))
                except RecordError as error:
                    refused.append(RefusedRecord(record, str(error)))
        for taken in cut(operations, self.config["batch.size"], self.config["bulk.size.bytes"]):
            refused += self._send(taken)
        return Written(refused)

    def _list_documents(
        self, rows: RecordColumns | Sequence[Record], refused: list[RefusedRecord]
    ) -> Iterator[tuple[Record, bytes | None]]:
        """Each record that does something, with its document. Records without values may do nothing."""
        converter = make_converter("json", {"schemas.enable": "false", "decimal.format": "NUMERIC"}, False)
        for record in columns_to_records(rows) if isinstance(rows, RecordColumns) else rows:
            if record.value is not None:
                self._prepare_index(record.topic, record.value_schema)
                try:
                    yield record, converter.to_bytes(record.topic, (), record.value_schema, record.value)
                except RecordError as error:
                    refused.append(RefusedRecord(record, str(error)))
            elif self._on_null == "fail":
                refused.append(RefusedRecord(record, "the record has no value, and behavior.on.null.values is fail"))
            elif self._on_null == "delete" and not self._ignores_key(record.topic):
                yield record, None

    def _ignores_key(self, topic: str) -> bool:
        return bool(self.config["key.ignore"]) or topic in self.config["topic.key.ignore"]

    def _make_operation(self, record: Record, document: bytes | None) -> Operation:
        return make_operation(record, document, self._ignores_key(record.topic), self._is_upsert)

    def _prepare_index(self, topic: str, schema: Schema | None) -> None:
        """Create the index of a topic with a mapping, if there is a schema and no index yet."""
        is_ignored = self.config["schema.ignore"] or topic in self.config["topic.schema.ignore"]
        if (
            is_ignored
            or topic in self._mapped
            or schema is None
            or schema.is_inferred
            or schema.type is not Type.STRUCT
        ):
            return
        body = orjson.dumps({"mappings": make_mapping(schema)})
        status, answer = self._cluster.ask("PUT", f"/{name_index(topic)}", body, "application/json")
        kind = (answer.get("error") or {}).get("type") if isinstance(answer, dict) else None
        if status >= 300 and kind != "resource_already_exists_exception":
            raise ConnectError(f"the index {name_index(topic)} cannot be created: {kind} (status {status})")
        self._mapped.add(topic)

    def _send(self, operations: Sequence[Operation]) -> list[RefusedRecord]:
        body = b"".join(each.lines for each in operations)
        status, answer = self._cluster.ask("POST", "/_bulk", body)
        if status == 413:
            raise ConnectError(f"the search cluster takes no request of {len(body)} bytes: lower bulk.size.bytes")
        if status >= 300:
            raise ConnectError(f"the search cluster refuses a bulk request (status {status}): {answer}")
        malformed = list_malformed(operations, answer)
        if self._on_malformed == "fail":
            return [RefusedRecord(record, reason) for record, reason in malformed]
        if self._on_malformed == "warn":
            for record, reason in malformed:
                log.warning("%s-%s, offset %s: %s", record.topic, record.partition, record.offset, reason)
        return []
