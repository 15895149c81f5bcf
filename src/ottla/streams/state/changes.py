"""What records of a topic do to a table: the values of their keys."""

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from ottla.streams.planning.plan import StorePlan
from ottla.streams.state.protocol import ProtocolError


class Changes(NamedTuple):
    values: Mapping[bytes, bytes | None]
    """The last value of each key; None for a deleted one."""
    bad: int
    """Records that were left out because they cannot be decoded. The task that reads them says which ones."""


class ChangeReader:
    """Reads batches of records with the columns key and value. A record without a key changes nothing."""

    def __init__(self, plan: StorePlan) -> None:
        if plan.value_format is not None:
            raise ProtocolError(f"store {plan.spec.name!r}: source tables are not supported")

    def read(self, batch: pa.RecordBatch) -> Changes:
        changes = dict(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))
        changes.pop(None, None)
        return Changes(changes, 0)
