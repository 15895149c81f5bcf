"""The columns of a topic, with the names and types of Spark's Kafka connector."""

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
}
"""The columns of a record that is not decoded."""

ERROR = "error"
"""The column that says why another is null, with badRecords=null."""


_TEXT = (StringType, BinaryType)
WRITTEN: dict[str, tuple[type[DataType], ...]] = {
    "value": _TEXT,
    "key": _TEXT,
    "headers": (ArrayType,),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType, LongType),
}


def check_written(schema: StructType, topic: str | None) -> None:
    """Raises ValueError if rows of this schema cannot be written as records."""
    if "value" not in schema.names:
        raise ValueError(f"a column 'value' is needed, and there are only {', '.join(schema.names) or 'none'}")
    if "topic" not in schema.names and topic is None:
        raise ValueError("no topic: give the option 'topic', or rows with a column 'topic'")
    for field in schema.fields:
        if field.name not in WRITTEN:
            raise ValueError(f"column {field.name!r} is none of {', '.join(WRITTEN)}: select what is to be written")
        kind = field.dataType
        if not isinstance(kind, WRITTEN[field.name]):
            allowed = " or ".join(each.typeName() for each in WRITTEN[field.name])
            raise ValueError(f"column {field.name!r} is {kind.simpleString()}, and must be {allowed}")
        if field.name == "headers" and not _like_headers(kind):
            raise ValueError(f"column 'headers' is {kind.simpleString()}, and must be {HEADERS.simpleString()}")


def _like_headers(kind: DataType) -> bool:
    element = kind.elementType if isinstance(kind, ArrayType) else None
    if not isinstance(element, StructType):
        return False
    return [(field.name, type(field.dataType)) for field in element] == [("key", StringType), ("value", BinaryType)]
