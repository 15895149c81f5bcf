"""The schema of a read, and which column or field of a record each of Spark's columns comes from.

A `Shape` is made in the driver and sent to the tasks. With expandValue the fields of the value replace its column;
a column of the record that has the name of a field is then called record_<name>.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from ottla.pipeline.formats import NULL, Format
from pyspark_ottla.boundaries import OptionError
from pyspark_ottla.column_options import ColumnFormat, ColumnOptions
from pyspark_ottla.rows import COLUMNS, ERROR

if TYPE_CHECKING:
    import pyarrow

RENAMED = "record_"


class Origin(NamedTuple):
    """What a column of Spark holds: a column of the record, or a field of it."""

    column: str
    field: str | None = None


class Shape(NamedTuple):
    schema: StructType
    origins: tuple[Origin, ...]
    """What each column of the schema holds."""
    formats: Mapping[str, Format]
    """The formats of the columns key and value."""
    bad_records: str
    dead_letter_topic: str | None


def make_shape(options: ColumnOptions, formats: Mapping[str, Format]) -> Shape:
    """The shape of a read without a schema of the user's: the option `columns`, or all columns."""
    known = _record_columns(options)
    default = tuple(name for name in known if name != "headers" or options.headers)
    names = options.columns or default
    for name in names:
        if name not in known:
            raise OptionError(f"columns: there is no column {name!r}; there are {', '.join(known)}")
    if len(set(names)) < len(names):
        raise OptionError(f"columns: {', '.join(names)} names a column twice")
    fields = _layout(options, formats, names)
    schema = StructType([StructField(name, kind) for name, (kind, _) in fields.items()])
    return _shape(options, formats, schema, (origin for _, origin in fields.values()))


def make_shape_for(options: ColumnOptions, formats: Mapping[str, Format], schema: StructType) -> Shape:
    """The shape for a schema that Spark or the user gives. Raises OptionError if records do not have its columns."""
    fields = _layout(options, formats, tuple(_record_columns(options)))
    origins = []
    for field in schema.fields:
        if field.name not in fields:
            raise OptionError(f"schema: there is no column {field.name!r}; there are {', '.join(fields)}")
        kind, origin = fields[field.name]
        if field.dataType.simpleString() != kind.simpleString():
            said = field.dataType.simpleString()
            raise OptionError(f"schema: column {field.name!r} is {kind.simpleString()}, and not {said}; cast it")
        if to_arrow_type(field.dataType, timezone="UTC") != to_arrow_type(kind, timezone="UTC") or not field.nullable:
            raise OptionError(f"schema: column {field.name!r} has a NOT NULL, and a record may lack everything")
        origins.append(origin)
    return _shape(options, formats, schema, origins)


def find_type(schema: StructType, form: ColumnFormat, *, expand: bool) -> "pyarrow.DataType | None":
    """The type of the key or the value in the user's own schema, if it is there."""
    if expand and form.column == "value":
        fields = [field for field in schema.fields if field.name not in (*COLUMNS, ERROR)]
        return to_arrow_type(StructType(fields), timezone="UTC") if fields else None
    found = next((field.dataType for field in schema.fields if field.name == form.column), None)
    return None if found is None else to_arrow_type(found, timezone="UTC")


def _shape(
    options: ColumnOptions, formats: Mapping[str, Format], schema: StructType, origins: Iterable[Origin]
) -> Shape:
    return Shape(schema, tuple(origins), formats, options.bad_records, options.dead_letter_topic)


def _record_columns(options: ColumnOptions) -> tuple[str, ...]:
    return (*COLUMNS, ERROR) if options.bad_records == NULL else tuple(COLUMNS)


def _layout(
    options: ColumnOptions, formats: Mapping[str, Format], names: Iterable[str]
) -> dict[str, tuple[DataType, Origin]]:
    """The type and the origin of each column of Spark, in order."""
    kinds = {name: COLUMNS.get(name, COLUMNS["topic"]) for name in names}
    kinds.update({name: to_spark_type(form) for name, form in formats.items() if name in kinds})
    value = kinds.get("value")
    if not options.expand or not isinstance(value, StructType):
        return {name: (kind, Origin(name)) for name, kind in kinds.items()}
    taken = {field.name.lower() for field in value.fields}
    found: dict[str, tuple[DataType, Origin]] = {}
    for name, kind in kinds.items():
        if name == "value":
            found.update({field.name: (field.dataType, Origin(name, field.name)) for field in value.fields})
        else:
            found[RENAMED + name if name.lower() in taken else name] = kind, Origin(name)
    return found


def to_spark_type(form: Format) -> DataType:
    """The type of the column that a format makes."""
    return from_arrow_type(form.type, prefer_timestamp_ntz=True)
