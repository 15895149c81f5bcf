"""Something that is computed once for each schema, and asked for with each record."""

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from ottla.connect.data.schema import Schema

SCHEMAS_MAX: Final = 1000
"""Beyond so many schemas everything is forgotten: a source that makes a new schema for each record fills no memory."""

Found = TypeVar("Found")


class SchemaCache(Generic[Found]):
    """Most records share the very object of their schema, so it is looked up by identity first, which costs least.

    A pickled copy is empty; `make` has to survive pickling.
    """

    def __init__(self, make: Callable[[Schema], Found]) -> None:
        self._make = make
        self._by_identity: dict[int, tuple[Schema, Found]] = {}
        """With the schema, which has to live as long as its identity counts."""
        self._by_schema: dict[Schema, Found] = {}

    def find(self, schema: Schema) -> Found:
        known = self._by_identity.get(id(schema))
        if known is not None:
            return known[1]
        if schema in self._by_schema:
            found = self._by_schema[schema]
        else:
            found = self._make(schema)
            if len(self._by_schema) >= SCHEMAS_MAX:
                self._by_schema.clear()
            self._by_schema[schema] = found
        if len(self._by_identity) >= SCHEMAS_MAX:
            self._by_identity.clear()
        self._by_identity[id(schema)] = schema, found
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return SchemaCache, (self._make,)
