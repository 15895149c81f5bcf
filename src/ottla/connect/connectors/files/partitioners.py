"""Into which subdirectory a row goes: by topic partition, by fields, or by time. The names are Confluent's.

default    partition=<n>
field      <field>=<value>/...            partition.field.name
time       path.format, of a time cut to partition.duration.ms
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from math import gcd
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.compute as pc

from ottla.connect.data.columns import RecordColumns
from ottla.connect.errors import BadConfig, ConnectError

Partitioner = Callable[[int, RecordColumns], pa.Array]
"""From a topic partition and rows to the directory of each row, as a dictionary-encoded column."""

PATH_FORMAT: Final = "'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH"
MINUTE_MS: Final = 60_000
EPOCH: Final = datetime(1970, 1, 1)
PARTITIONERS: Final = ("default", "field", "time")

_WORDS: Final = re.compile(r"'([^']*)'|(yyyy|YYYY|MM|dd|HH|mm|ss)|([^A-Za-z'])|(.)")
_DIRECTIVES: Final = {"yyyy": "%Y", "YYYY": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}


def make_partitioner(config: Mapping[str, Any]) -> Partitioner:
    """BadConfig if the settings name what does not exist."""
    match config["partitioner.class"]:
        case "field":
            return _by_fields([each for each in config["partition.field.name"] if each])
        case "time":
            return _by_time(config)
    return lambda partition, rows: _constant(f"partition={partition}", len(rows))


def _constant(name: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), [name])


def _by_fields(names: list[str]) -> Partitioner:
    if not names:
        raise BadConfig("partition.field.name: the partitioner `field` needs it")

    def encode(_: int, rows: RecordColumns) -> pa.Array:
        parts = [
            pc.binary_join_element_wise(f"{name}=", _read_field(rows, name).cast(pa.string()).fill_null("null"), "")
            for name in names
        ]
        joined = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "/")
        return pc.replace_substring_regex(joined, r"\.\.", "__").dictionary_encode()

    return encode


def _read_field(rows: RecordColumns, path: str) -> pa.Array:
    found = rows.value
    for name in path.split("."):
        if not pa.types.is_struct(found.type) or found.type.get_field_index(name) < 0:
            raise ConnectError(f"the records of topic {rows.topic!r} have no field {path!r} to name directories after")
        found = pc.struct_field(found, name)
    return found


def _by_time(config: Mapping[str, Any]) -> Partitioner:
    duration_ms = config["partition.duration.ms"]
    step_ms = gcd(duration_ms, MINUTE_MS)  # zones differ by whole minutes: times of a step share a directory
    directives = _translate(config["path.format"])
    field = config["timestamp.field"]
    try:
        zone = ZoneInfo(config["timezone"])
    except (ZoneInfoNotFoundError, ValueError):
        raise BadConfig(f"timezone={config['timezone']!r} is no time zone") from None

    def encode(_: int, rows: RecordColumns) -> pa.Array:
        times = _find_times(rows, field)
        cut = pc.multiply(pc.divide(times, step_ms), step_ms).dictionary_encode()
        starts = [_find_start(each, duration_ms, zone) for each in cut.dictionary.to_pylist()]
        names = pa.array([each.strftime(directives) for each in starts], pa.string()).dictionary_encode()
        return pa.DictionaryArray.from_arrays(names.indices.take(cut.indices), names.dictionary)

    return encode


def _find_start(time_ms: int, duration_ms: int, zone: ZoneInfo) -> datetime:
    """The local time at which the directory of a time begins."""
    local = datetime.fromtimestamp(time_ms / 1000, UTC).astimezone(zone).replace(tzinfo=None)
    since = local - EPOCH
    return EPOCH + since // timedelta(milliseconds=duration_ms) * timedelta(milliseconds=duration_ms)


def _find_times(rows: RecordColumns, field: str) -> pa.Array:
    """Milliseconds: of the field if there is one, else of the record."""
    if field:
        found = _read_field(rows, field)
        found = found.cast(pa.timestamp("ms", "UTC")) if pa.types.is_timestamp(found.type) else found
        found = found.cast(pa.int64())
    else:
        found = rows.timestamp
    if found is None or found.null_count:
        raise ConnectError(f"a record of topic {rows.topic!r} has no time to name its directory after")
    return found


def _translate(pattern: str) -> str:
    """A pattern of Java's as one of Python's."""
    out = []
    for literal, word, sign, other in _WORDS.findall(pattern):
        if other:
            raise BadConfig(f"path.format={pattern!r}: {other!r} is not supported; write words in quotes")
        out.append(_DIRECTIVES[word] if word else (literal or sign).replace("%", "%%"))
    return "".join(out)
