"""How far the sink has written, in a table of the database that it writes to.

The ledger and the rows change in the same transaction. Each start of a connector has a higher epoch. Whoever goes on
in a topic partition first writes its epoch there; a transaction of an earlier owner, which changes the ledger as its
last act, then finds another epoch than its own and comes to nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ottla.connect.connectors.jdbc.dialect import Dialect
from ottla.connect.connectors.jdbc.session import Session
from ottla.connect.errors import ConnectError
from ottla.topic_partition import TopicPartition


class NotOwner(ConnectError):
    """Another run of the connector writes to the database now."""


_CLAIM = TopicPartition("", -1)
"""The row that has the epoch of the last start."""


@dataclass(frozen=True)
class Ledger:
    dialect: Dialect
    table: str
    """Quoted."""
    connector: str

    def create(self, session: Session) -> None:
        self.dialect.lock_catalogue(session)
        session.execute(
            f"CREATE TABLE IF NOT EXISTS {self.table} (connector text NOT NULL, topic text NOT NULL,"
            " topic_partition integer NOT NULL, next_offset bigint, epoch bigint NOT NULL,"
            " PRIMARY KEY (connector, topic, topic_partition))"
        )
        session.commit()

    def claim(self, session: Session) -> int:
        """The epoch of a new owner."""
        rows = session.query_rows(
            f"INSERT INTO {self.table} AS ledger (connector, topic, topic_partition, epoch) VALUES ($1, $2, $3, 1)"
            " ON CONFLICT (connector, topic, topic_partition) DO UPDATE SET epoch = ledger.epoch + 1 RETURNING epoch",
            (self.connector, *_CLAIM),
        )
        session.commit()
        return int(rows[0]["epoch"])

    def take(self, session: Session, partitions: Sequence[TopicPartition], epoch: int) -> dict[TopicPartition, int]:
        """Shut earlier owners out of the partitions. The next offsets of those that have one."""
        self.dialect.begin_writing(session, self.table)
        found = {}
        for where in partitions:
            rows = session.query_rows(
                f"INSERT INTO {self.table} AS ledger (connector, topic, topic_partition, epoch) VALUES ($1, $2, $3, $4)"
                " ON CONFLICT (connector, topic, topic_partition) DO UPDATE SET epoch = excluded.epoch"
                " WHERE ledger.epoch <= excluded.epoch RETURNING next_offset",
                (self.connector, *where, epoch),
            )
            if not rows:
                raise self._not_owner(where)
            if rows[0]["next_offset"] is not None:
                found[where] = int(rows[0]["next_offset"])
        session.commit()
        return found

    def read(self, session: Session, where: TopicPartition, epoch: int) -> int | None:
        """The next offset. The first statement of a transaction that writes."""
        self.dialect.begin_writing(session, self.table)
        rows = session.query_rows(
            f"SELECT next_offset, epoch FROM {self.table} WHERE connector = $1 AND topic = $2 AND topic_partition = $3",
            (self.connector, *where),
        )
        if not rows or rows[0]["epoch"] != epoch:
            raise self._not_owner(where)
        position = rows[0]["next_offset"]
        return None if position is None else int(position)

    def move(self, session: Session, where: TopicPartition, epoch: int, position: int | None, end: int) -> None:
        """The last statement of a transaction that writes. NotOwner if the ledger is not as `read` has seen it."""
        rows = session.query_rows(
            f"UPDATE {self.table} SET next_offset = $1 WHERE connector = $2 AND topic = $3 AND topic_partition = $4"
            " AND epoch = $5 AND COALESCE(next_offset, -1) = $6 RETURNING epoch",
            (end, self.connector, *where, epoch, -1 if position is None else position),
        )
        if not rows:
            raise self._not_owner(where)

    def set(self, session: Session, positions: Mapping[TopicPartition, int | None], epoch: int) -> None:
        """Set next offsets of partitions that were taken; None forgets one."""
        self.dialect.begin_writing(session, self.table)
        for where, offset in positions.items():
            rows = session.query_rows(
                f"UPDATE {self.table} SET next_offset = NULLIF($1, -1) WHERE connector = $2 AND topic = $3"
                " AND topic_partition = $4 AND epoch = $5 RETURNING epoch",
                (-1 if offset is None else offset, self.connector, *where, epoch),
            )
            if not rows:
                raise self._not_owner(where)
        session.commit()

    def _not_owner(self, where: TopicPartition) -> NotOwner:
        return NotOwner(f"{where}: another run of the connector {self.connector} writes to the database now")
