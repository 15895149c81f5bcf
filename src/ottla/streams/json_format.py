"""Decodes JSON records: Arrow parses them all at once, and what it cannot read is read row by row.

The forms of values are those of `state/json_text.py`, so that an app reads what it writes. Row by row are read maps,
binary values, NaN, and records that are bad: the reason names the field.
"""

from typing import Any

import orjson
import pyarrow as pa

from ottla.pipeline.formats import Decoded, scatter
from ottla.pipeline.formats.text import Json
from ottla.streams.state.json_text import check_type
from ottla.streams.state.json_values import make_reader
from ottla.streams.state.values import parser_type


class JsonDecoder:
    def __init__(self, kind: pa.DataType) -> None:
        check_type(kind, "value")
        self.type = kind
        self._at_once = Json(kind) if parser_type(kind) is not None else None
        self._read = make_reader(kind, for_python=False)

    def decode(self, values: pa.Array) -> Decoded:
        if self._at_once is None:
            return self._decode_by_row(values)
        column, failed = self._at_once.decode(values)
        if not failed:
            return Decoded(column, {})
        rows = sorted(failed)
        again, bad = self._decode_by_row(values.take(pa.array(rows, pa.int64())))
        others = [row for row in range(len(values)) if row not in failed]
        parts = [(others, column.take(pa.array(others, pa.int64()))), (rows, again)]
        return Decoded(scatter(parts, len(values), self.type), {rows[at]: reason for at, reason in bad.items()})

    def _decode_by_row(self, values: pa.Array) -> Decoded:
        bad: dict[int, str] = {}
        found: list[Any] = []
        for row, value in enumerate(values.to_numpy(zero_copy_only=False).tolist()):
            try:
                found.append(None if value is None else self._read(orjson.loads(value)))
            except orjson.JSONDecodeError as error:
                bad[row] = f"not JSON: {error}"
                found.append(None)
            except ValueError as error:
                bad[row] = f"not the JSON that the schema says: {error}"
                found.append(None)
        return Decoded(pa.array(found, self.type), bad)
