"""What a converter is: bytes to a schema and a value, and back, for one record or for a column."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import pyarrow as pa

from ottla.connect.data.conversion import array_to_values, values_to_array
from ottla.connect.data.record import Header
from ottla.connect.data.schema import Schema
from ottla.connect.settings.definition import Settings

Headers = Sequence[Header]


class Converter(ABC):
    """Converters hold no connection and survive pickling. RecordError says that a record cannot be converted."""

    settings: ClassVar[Settings] = Settings()

    @abstractmethod
    def from_bytes(self, topic: str, headers: Headers, data: bytes | None) -> tuple[Schema | None, Any]:
        """The schema and the value of a key or value in a topic. None as schema: the data has none."""

    @abstractmethod
    def to_bytes(self, topic: str, headers: Headers, schema: Schema | None, value: Any) -> bytes | None:
        """The bytes to write to a topic. None is a tombstone, or no key."""

    def columns_from_bytes(self, topic: str, data: pa.Array) -> tuple[Schema, pa.Array] | None:
        """All rows at once. None if they have no common schema; the caller then takes them one by one.

        RecordError if a row is bad; which one shows when the caller takes them one by one.
        """
        found: Schema | None = None
        values = []
        for each in data.to_pylist():
            schema, value = self.from_bytes(topic, (), each)
            if value is not None:
                if schema is None or (found is not None and schema != found):
                    return None
                found = schema
            values.append(value)
        return None if found is None else (found, values_to_array(found, values))

    def columns_to_bytes(self, topic: str, schema: Schema, column: pa.Array) -> pa.Array:
        """All rows at once, as binary. A null stays null: it is a tombstone, or no key."""
        rows = array_to_values(column)
        return pa.array(
            [None if each is None else self.to_bytes(topic, (), schema, each) for each in rows], pa.binary()
        )


class HeaderConverter(ABC):
    settings: ClassVar[Settings] = Settings()

    @abstractmethod
    def header_from_bytes(self, topic: str, key: str, data: bytes | None) -> tuple[Schema | None, Any]: ...

    @abstractmethod
    def header_to_bytes(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None: ...


class ValueHeaderConverter(HeaderConverter):
    """Converts headers as a converter of values does."""

    def __init__(self, converter: Converter) -> None:
        self._converter = converter

    def header_from_bytes(self, topic: str, key: str, data: bytes | None) -> tuple[Schema | None, Any]:
        return self._converter.from_bytes(topic, (), data)

    def header_to_bytes(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        return self._converter.to_bytes(topic, (), schema, value)
