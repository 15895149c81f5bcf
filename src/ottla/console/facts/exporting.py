"""Records as files: CSV, JSON lines, Parquet.

Spreadsheets take a cell that begins with =, +, -, @, a tab or a line feed for a formula, which may start programs. Such
cells get an apostrophe before them in CSV.
"""

import csv
import json
from base64 import b64encode
from collections.abc import Iterable
from io import StringIO
from typing import Any

from ottla.console.facts.decoding import Decoder
from ottla.console.facts.records import FoundRecord
from ottla.pipeline import json_text

COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def defuse(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{cell}" if cell.startswith(_FORMULA) else cell


def to_csv(records: Iterable[FoundRecord], decoder: Decoder, key_format: str, value_format: str) -> bytes:
    text = StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for record in records:
        headers = {name: json_text.to_text(value or b"") for name, value in record.headers}
        cells = (
            _to_cell(record.key, decoder, key_format),
            _to_cell(record.value, decoder, value_format),
            json.dumps(headers, ensure_ascii=False) if headers else "",
        )
        writer.writerow((record.partition, record.offset, record.timestamp, *map(defuse, cells)))
    return text.getvalue().encode("utf-8", "surrogatepass")


def to_json_lines(records: Iterable[FoundRecord], decoder: Decoder, key_format: str, value_format: str) -> bytes:
    """One object a line. Numbers keep all their digits; bytes that are no text are {"base64": ...}."""
    lines = []
    for record in records:
        document = {
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": _to_document(record.key, decoder, key_format),
            "value": _to_document(record.value, decoder, value_format),
            "headers": [
                {"name": name, "value": _to_document(value, decoder, "text")} for name, value in record.headers
            ],
        }
        lines.append(json_text.write(document, indented=False) + "\n")
    return "".join(lines).encode("utf-8", "surrogatepass")


def to_parquet(records: Iterable[FoundRecord]) -> bytes:
    """Keys and values as bytes, exactly as they are in the topic. Raises ImportError without pyarrow."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = list(records)
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    table = pa.table(
        {
            "partition": pa.array([row.partition for row in rows], pa.int32()),
            "offset": pa.array([row.offset for row in rows], pa.int64()),
            "timestamp": pa.array([row.timestamp for row in rows], pa.timestamp("ms", "UTC")),
            "key": pa.array([row.key for row in rows], pa.binary()),
            "value": pa.array([row.value for row in rows], pa.binary()),
            "headers": pa.array(
                [[{"key": name, "value": value} for name, value in row.headers] for row in rows], pa.list_(header)
            ),
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue())


def _to_cell(value: bytes | None, decoder: Decoder, wanted: str) -> str:
    if value is None:
        return ""
    return decoder.decode(value, wanted).text


def _to_document(value: bytes | None, decoder: Decoder, wanted: str) -> Any:
    if value is None:
        return None
    decoded = decoder.decode(value, wanted)
    return {"base64": b64encode(value).decode()} if decoded.kind == "hex" else decoded.content
