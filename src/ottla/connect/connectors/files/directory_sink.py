"""DirectorySink: the records of topics as files of a directory, each record in exactly one file.

    <directory>/<topics.dir>/<topic>/<partition's directory>/<topic>+<partition>+<first offset>.<extension>

Files are written under another name, and the ledger of the topic partition is told about all files of a batch before
the first of them gets its name. If the writer dies, the next one gives the rest of them their names. Readers therefore
see whole files only.
"""

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from ottla.client.backoff import now_ms
from ottla.connect.connector import ConnectorContext, Sink, SinkBatch, Written
from ottla.connect.connectors.files.formats import make_format, to_columns
from ottla.connect.connectors.files.ledger import Ledger, LedgerFile, sync_directory
from ottla.connect.connectors.files.partitioners import make_partitioner
from ottla.connect.connectors.files.pieces import Cut, Rotation, cut_rows, list_after
from ottla.connect.connectors.files.storage_settings import STORAGE_SETTINGS
from ottla.connect.settings.definition import REQUIRED, Importance, Kind, Setting, Settings
from ottla.topic_partition import TopicPartition

LOOK_S: Final = 1.0
"""How often a range that may be too short for a file is looked at again."""


class DirectorySink(Sink):
    settings: ClassVar[Settings] = Settings(
        (
            Setting("directory", Kind.STRING, REQUIRED, "The directory to write to.", Importance.HIGH),
            *STORAGE_SETTINGS,
        )
    )
    version: ClassVar[str] = "1"

    def __init__(self, config: Mapping[str, Any], context: ConnectorContext) -> None:
        super().__init__(config, context)
        self._directory = os.path.abspath(config["directory"])
        self._own = os.path.join(self._directory, f".{context.name}")
        """Ledgers, and files that do not have their names yet."""
        self._rotation = Rotation.of(config)
        make_partitioner(config)  # raises BadConfig
        self._claim = LedgerFile(os.path.join(self._own, "claim"))
        self._epoch = 0
        self._looked_s: dict[TopicPartition, float] = {}

    def start(self) -> None:
        self._epoch = self._claim.claim()

    def is_due(self, where: TopicPartition, start: int, end: int) -> bool:
        if end - start < self._rotation.flush_size and time.monotonic() - self._looked_s.get(where, 0.0) < LOOK_S:
            return False
        self._looked_s[where] = time.monotonic()
        return True

    def find_positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        found = {}
        for where in partitions:
            file = self._ledger_of(where)
            file.claim(self._epoch)
            with file.open(self._epoch) as ledger:
                self._finish(file, ledger)
                if str(where) in ledger.positions:
                    found[where] = ledger.positions[str(where)]
        return found

    def alter_positions(self, positions: Mapping[TopicPartition, int | None]) -> bool:
        for where, offset in positions.items():
            file = self._ledger_of(where)
            file.claim(self._epoch)
            with file.open(self._epoch) as ledger:
                self._finish(file, ledger)
                ledger.move({where: offset})
                file.save(ledger)
        return True

    def _ledger_of(self, where: TopicPartition) -> LedgerFile:
        return LedgerFile(os.path.join(self._own, str(where)))

    def write(self, batch: SinkBatch) -> Written:
        where = TopicPartition(batch.topic, batch.partition)
        file = self._ledger_of(where)
        with file.open(self._epoch) as ledger:
            self._finish(file, ledger)
            position = ledger.positions.get(str(where), batch.start)
            columns = [each for rows in batch.rows for each in list_after(to_columns(rows), position)]
            cut = cut_rows(batch.partition, columns, make_partitioner(self.config), self._rotation, now_ms())
            end = max(batch.end if cut.end is None else cut.end, position)
            if cut.pieces or end > position:
                batch.set_aside((), end)
                self._write(file, ledger, where, cut, end)
        return Written(end=end)

    def _write(self, file: LedgerFile, ledger: Ledger, where: TopicPartition, cut: Cut, end: int) -> None:
        format_ = make_format(self.config["format"], self.config)
        moves = []
        for number, piece in enumerate(cut.pieces):
            pending = os.path.join(self._own, f"{where}.{number}.pending")
            with open(pending, "wb") as out:
                out.write(format_.write(piece.schema, piece.join()))
                out.flush()
                os.fsync(out.fileno())
            name = f"{where.topic}+{where.partition}+{piece.start:010d}.{format_.extension}"
            place = os.path.join(self._directory, self.config["topics.dir"], where.topic, piece.directory, name)
            moves.append([pending, place])
        ledger.intent = {"moves": moves, "positions": {str(where): end}}
        file.save(ledger)
        self._finish(file, ledger)

    def _finish(self, file: LedgerFile, ledger: Ledger) -> None:
        """Give the files of the intent their names, as far as they do not have them."""
        if ledger.intent is None:
            return
        for pending, place in ledger.intent["moves"]:
            if os.path.exists(pending):
                os.makedirs(os.path.dirname(place), exist_ok=True)
                os.replace(pending, place)
                sync_directory(os.path.dirname(place))
        ledger.positions |= ledger.intent["positions"]
        ledger.intent = None
        file.save(ledger)
