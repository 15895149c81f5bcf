"""S3Sink: the records of topics as objects of a bucket, each record in exactly one object.

    <topics.dir>/<topic>/<partition's prefix>/<topic>+<partition>+<first offset>.<extension>

The content of all objects of a batch is brought to the bucket by uploads that nobody sees. Then the ledger of the topic
partition is told about these uploads, on the condition that no other run of the connector has claimed it, and only
then they are completed. If the writer dies, the next one completes the uploads that the ledger names and aborts
others. Where an object ends may depend on a clock, because a batch that is in the ledger is never cut again.
"""

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from ottla.client.backoff import now_ms
from ottla.connect.connector import ConnectorContext, RefusedRecord, Sink, SinkBatch, Written
from ottla.connect.connectors.files.formats import to_columns
from ottla.connect.connectors.files.pieces import Cut, Rotation, cut_rows, list_after
from ottla.connect.connectors.s3.bucket import Bucket, Upload
from ottla.connect.connectors.s3.ledger import LedgerObject
from ottla.connect.connectors.s3.settings import (
    SINK_SETTINGS,
    choose_format,
    choose_partitioner,
    find_address,
    find_object_options,
    keeps_json,
)
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.conversion import columns_to_records
from ottla.connect.settings.definition import Settings
from ottla.topic_partition import TopicPartition

LOOK_S: Final = 1.0
"""How often a range that may be too short for an object is looked at again."""
CLAIM: Final = "claim"


class S3Sink(Sink):
    settings: ClassVar[Settings] = SINK_SETTINGS
    version: ClassVar[str] = "1"

    def __init__(self, config: Mapping[str, Any], context: ConnectorContext) -> None:
        super().__init__(config, context)
        self._bucket = Bucket(find_address(config), find_object_options(config))
        self._rotation = Rotation.of(config)
        choose_partitioner(config)  # raises BadConfig
        self._keeps_json = keeps_json(config)
        self._owner = uuid.uuid4().hex
        self._epoch = 0
        self._looked_s: dict[TopicPartition, float] = {}

    def start(self) -> None:
        self._bucket.check()
        claim = self._ledger_at(CLAIM)
        self._epoch = claim.claim()
        claim.check_conditions()

    def _ledger_at(self, name: str) -> LedgerObject:
        return LedgerObject(self._bucket, f"{self.config['topics.dir']}/.{self.context.name}/{name}.json", self._owner)

    def is_due(self, where: TopicPartition, start: int, end: int) -> bool:
        if end - start < self._rotation.flush_size and time.monotonic() - self._looked_s.get(where, 0.0) < LOOK_S:
            return False
        self._looked_s[where] = time.monotonic()
        return True

    def find_positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        found = {}
        for where in partitions:
            kept = self._ledger_at(str(where))
            unfinished = self._list_uploads(where)
            kept.claim(self._epoch)
            self._finish(kept)
            for upload in unfinished:  # by writers that cannot tell the ledger about them any more
                self._bucket.abort(upload)
            if str(where) in kept.ledger.positions:
                found[where] = kept.ledger.positions[str(where)]
        return found

    def alter_positions(self, positions: Mapping[TopicPartition, int | None]) -> bool:
        self.find_positions([*positions])
        for where, offset in positions.items():
            kept = self._ledger_at(str(where))
            kept.load_as(self._epoch)
            kept.ledger.move({where: offset})
            kept.save()
        return True

    def _list_uploads(self, where: TopicPartition) -> list[Upload]:
        found = self._bucket.list_uploads(f"{self._prefix(where)}/")
        return [each for each in found if each.key.rpartition("/")[2].startswith(self._name(where, ""))]

    def _prefix(self, where: TopicPartition) -> str:
        return f"{self.config['topics.dir']}/{where.topic}"

    def _name(self, where: TopicPartition, rest: str) -> str:
        delimiter: str = self.config["file.delim"]
        return delimiter.join((where.topic, str(where.partition), rest))

    def write(self, batch: SinkBatch) -> Written:
        where = TopicPartition(batch.topic, batch.partition)
        kept = self._ledger_at(str(where))
        kept.load_as(self._epoch)
        self._finish(kept)
        position = kept.ledger.positions.get(str(where), batch.start)
        columns = [each for rows in batch.rows for each in list_after(to_columns(rows, self._keeps_json), position)]
        cut = cut_rows(batch.partition, columns, choose_partitioner(self.config), self._rotation, now_ms())
        end = max(batch.end if cut.end is None else cut.end, position)
        refused = self._list_refused(batch, end)
        if end > position:
            uploads = self._upload(where, cut)
            batch.set_aside(refused, end)
            kept.ledger.intent = {"uploads": uploads, "where": str(where), "end": end}
            kept.save()
            self._finish(kept)
        return Written(refused, end)

    def _list_refused(self, batch: SinkBatch, end: int) -> list[RefusedRecord]:
        """Records without a value, if they are not to be ignored."""
        if self.config["behavior.on.null.values"] == "ignore":
            return []
        records = []
        for rows in batch.rows:
            if not isinstance(rows, RecordColumns):
                records += [each for each in rows if each.value is None]
            elif rows.value.null_count:
                records += [each for each in columns_to_records(rows) if each.value is None]
        reason = "the record has no value, and behavior.on.null.values is fail"
        return [RefusedRecord(each, reason) for each in records if each.offset is not None and each.offset < end]

    def _upload(self, where: TopicPartition, cut: Cut) -> list[Upload]:
        form = choose_format(self.config)
        width: int = self.config["filename.offset.zero.pad.width"]
        uploads = []
        for piece in cut.pieces:
            name = self._name(where, f"{piece.start:0{width}d}.{form.extension}")
            key = f"{self._prefix(where)}/{piece.directory}/{name}"
            data = form.write(piece.schema, piece.join())
            uploads.append(self._bucket.upload(key, data, self.config["s3.part.size"]))
        return uploads

    def _finish(self, kept: LedgerObject) -> None:
        """Complete the uploads of the intent, as far as they are not."""
        intent = kept.ledger.intent
        if intent is None:
            return
        for upload in intent["uploads"]:
            self._bucket.complete(Upload(*upload))
        kept.ledger.positions[intent["where"]] = intent["end"]
        kept.ledger.intent = None
        kept.save()
