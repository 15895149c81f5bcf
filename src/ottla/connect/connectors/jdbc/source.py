"""JdbcSource: the rows of tables or of a query, all of them again and again or those that are new.

Rows that a transaction has not committed yet must not be passed by. A read by an incrementing column ends at the
highest value that was there before the transactions that write to the table were listed, and waits until these have
ended. A read by timestamps ends before the oldest transaction that still runs began.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ottla.client.backoff import now_ms
from ottla.connect.connector import ConnectorContext, Part, Source, SourceBatch, SourceOffset, partition_key
from ottla.connect.connectors.jdbc.connection_settings import make_dialect
from ottla.connect.connectors.jdbc.dialect import TableId
from ottla.connect.connectors.jdbc.polling import Target, TargetQuery
from ottla.connect.connectors.jdbc.session import Session
from ottla.connect.connectors.jdbc.source_settings import BULK, INCREMENTING, SOURCE_SETTINGS
from ottla.connect.data.columns import RecordColumns
from ottla.connect.errors import ConnectError
from ottla.connect.settings.definition import Settings


@dataclass
class _Poll:
    """What the driver knows about a table."""

    target: Target
    due_s: float = 0.0
    offset: SourceOffset | None = None
    """At the last look. If it has moved since, there may be more."""
    cap: int | None = None
    """The highest value of the incrementing column that may be read when the writers have ended."""
    writers: set[str] = field(default_factory=set)


class JdbcSource(Source):
    settings: ClassVar[Settings] = SOURCE_SETTINGS
    version: ClassVar[str] = "1"

    def __init__(self, config: Mapping[str, Any], context: ConnectorContext) -> None:
        super().__init__(config, context)
        self._dialect = make_dialect(config)
        self._mode: str = config["mode"]
        self._polls: dict[str, _Poll] = {}
        """By the partition's key."""
        self._tables_due_s = 0.0
        self._initial: SourceOffset | None = None
        initial = config["timestamp.initial"]
        if initial is not None:
            self._initial = {"timestamp": now_ms() if initial == -1 else initial}

    def plan(self, offsets: Mapping[str, SourceOffset]) -> Sequence[Part]:
        now_s = time.monotonic()
        if now_s < self._tables_due_s and not any(self._is_due(key, offsets, now_s) for key in self._polls):
            return []
        parts: list[Part] = []
        with self._dialect.open() as session:
            if now_s >= self._tables_due_s:
                self._find_tables(session)
                self._tables_due_s = now_s + self.config["table.poll.interval.ms"] / 1000
            # A task may not come to its last parts, so those that were read last come last.
            for key, poll in sorted(self._polls.items(), key=lambda each: offsets.get(each[0]) != each[1].offset):
                if not self._is_due(key, offsets, now_s) or (parts and self._mode == BULK):
                    continue  # a table in bulk has no offset that would tell whether it was read
                poll.due_s = now_s + self.config["poll.interval.ms"] / 1000
                poll.offset = offsets.get(key)
                work = self._look(session, poll)
                if work is not None:
                    parts.append(Part(self._make_partition(poll.target), work))
        return parts

    def _is_due(self, key: str, offsets: Mapping[str, SourceOffset], now_s: float) -> bool:
        poll = self._polls[key]
        return bool(poll.writers) or now_s >= poll.due_s or offsets.get(key) != poll.offset

    def _find_tables(self, session: Session) -> None:
        if self.config["query"]:
            targets = [Target(None, self.config["query"])]
        else:
            targets = [Target(table) for table in self._choose(self._dialect.list_tables(session))]
        found = {partition_key(self._make_partition(target)): target for target in targets}
        self._polls = {key: self._polls.get(key) or _Poll(target) for key, target in found.items()}

    def _choose(self, tables: Sequence[TableId]) -> list[TableId]:
        wanted, unwanted = self.config["table.whitelist"], self.config["table.blacklist"]
        missing = [name for name in wanted if not any(name in (table.name, str(table)) for table in tables)]
        if missing:
            raise ConnectError(f"table.whitelist: there is no table {', '.join(missing)} that can be read")
        return [
            table
            for table in tables
            if (not wanted or table.name in wanted or str(table) in wanted)
            and table.name not in unwanted
            and str(table) not in unwanted
        ]

    def _make_partition(self, target: Target) -> dict[str, Any]:
        """As Confluent's connector names it."""
        if target.table is None:
            return {"query": "query"}
        return {"table": target.table.name} if self._mode == BULK else {"protocol": "1", "table": str(target.table)}

    def _look(self, session: Session, poll: _Poll) -> dict[str, Any] | None:
        """What a task has to know to read the target now; None if there is nothing to read."""
        place = {"table": None if poll.target.table is None else [poll.target.table.schema, poll.target.table.name]}
        if self._mode == BULK:
            return place
        query = TargetQuery(self.config, self._dialect, session, poll.target)
        cap = (
            self._find_number_cap(session, query, poll) if self._mode == INCREMENTING else self._find_time_cap(session)
        )
        session.commit()
        if cap is None or not query.has_rows(poll.offset or self._initial, cap):
            return None
        return {**place, "cap": cap}

    def _find_time_cap(self, session: Session) -> int:
        delay_ms: int = self.config["timestamp.delay.interval.ms"]
        return self._dialect.find_oldest_start(session) - delay_ms * 1000

    def _find_number_cap(self, session: Session, query: TargetQuery, poll: _Poll) -> int | None:
        """None while a transaction that has begun to write may still commit a lower value."""
        if poll.writers:
            poll.writers &= set(self._dialect.list_writers(session, poll.target.table))
        else:
            poll.cap = query.find_highest_number()
            session.commit()
            poll.writers = set(self._dialect.list_writers(session, poll.target.table))
        return None if poll.writers else poll.cap

    def read(self, part: Part, offset: SourceOffset | None) -> Iterator[SourceBatch]:
        place = part.work["table"]
        target = Target(None, self.config["query"]) if place is None else Target(TableId(*place))
        topic = self.config["topic.prefix"] + ("" if target.table is None else target.table.name)
        with self._dialect.open() as session:
            query = TargetQuery(self.config, self._dialect, session, target)
            if self._mode == BULK:
                for values in query.read_all():
                    yield SourceBatch([RecordColumns(topic, query.schema, values)], None)
                return
            session.commit()
            rows = self.config["batch.max.rows"]
            values, following = query.read_page(offset or self._initial, part.work["cap"], rows)
            if following is not None:
                yield SourceBatch([RecordColumns(topic, query.schema, values)], following)
