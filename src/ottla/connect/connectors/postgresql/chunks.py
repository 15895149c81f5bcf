"""Which rows of a table were read in which snapshot, so that the log adds what the snapshot did not see.

A table is read in chunks, in the order of its primary key, each in a snapshot of its own. Afterwards the log is read
from the beginning of the slot. A change is left out if its transaction is visible in the snapshot of the chunk that
holds its key, because the chunk has it already: so each change appears once, whenever the snapshot was interrupted.
"""

import json
import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

KeyTexts = Sequence[str]
"""The values of a primary key, as PostgreSQL writes them."""

_WRAP: Final = 1 << 32


@dataclass(frozen=True)
class Snapshot:
    """As pg_current_snapshot() gives it: which transactions were visible."""

    xmin: int
    xmax: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> "Snapshot":
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), frozenset(int(each) for each in running.split(",") if each))

    def has_seen(self, xid: int) -> bool:
        """`xid` has 32 bits, as in the log. It is less than 2^31 away from the snapshot."""
        distance = (xid - self.xmax) % _WRAP
        if distance < _WRAP // 2:
            return False
        whole = self.xmax + distance - _WRAP
        return whole < self.xmin or whole not in self.running


@dataclass(frozen=True)
class Chunk:
    last_key: KeyTexts | None
    """None: to the end of the table."""
    snapshot: str


def add_chunk(chunks: Sequence[Chunk], added: Chunk) -> list[Chunk]:
    """Neighbours that were read in the same snapshot are one chunk."""
    kept = list(chunks)
    if kept and kept[-1].snapshot == added.snapshot:
        kept.pop()
    return [*kept, added]


def write_chunks(chunks: Sequence[Chunk]) -> str:
    """As one text, because the values of a source offset are plain."""
    return json.dumps([[each.last_key, each.snapshot] for each in chunks], separators=(",", ":"))


def read_chunks(text: str) -> list[Chunk]:
    return [Chunk(key, snapshot) for key, snapshot in json.loads(text)]


class ReadRows:
    """The chunks of one table that has been read to its end."""

    def __init__(self, chunks: Sequence[Chunk], key_types: Sequence[str]) -> None:
        self._orders = [KEY_ORDERS.get(each, str.encode) for each in key_types]
        self._bounds = [self._order(each.last_key) for each in chunks if each.last_key is not None]
        self._snapshots = [Snapshot.parse(each.snapshot) for each in chunks]

    def _order(self, key: KeyTexts) -> tuple[Any, ...]:
        return tuple(order(text) for order, text in zip(self._orders, key, strict=True))

    def has_seen(self, xid: int, key: KeyTexts | None) -> bool:
        """Whether a change is in the rows already. The key is None in a table without one, which is one chunk."""
        at = bisect_left(self._bounds, self._order(key)) if key is not None and self._bounds else 0
        return self._snapshots[at].has_seen(xid)


def _order_decimal(text: str) -> tuple[int, Decimal]:
    """NaN is greater than all others."""
    value = Decimal(text)
    return (1, Decimal(0)) if value.is_nan() else (0, value)


def _order_date(text: str) -> tuple[float, str]:
    if text.endswith("infinity"):
        return -math.inf if text.startswith("-") else math.inf, ""
    year, _, rest = text.partition("-")
    rest, _, zone = rest.partition("+")
    return -int(year) if "BC" in zone or rest.endswith("BC") else int(year), rest.removesuffix(" BC")


KEY_ORDERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "int2": int,
    "int4": int,
    "int8": int,
    "oid": int,
    "numeric": _order_decimal,
    "text": str.encode,
    "varchar": str.encode,
    "bytea": str.encode,
    "uuid": str.encode,
    "date": _order_date,
    "timestamp": _order_date,
    "timestamptz": _order_date,
}
"""By the name of the type: values that are in order as ORDER BY has them. Texts are read in the order of their bytes,
COLLATE "C". A table with a key of another type is one chunk."""
COLLATED: Final = frozenset(("text", "varchar"))
