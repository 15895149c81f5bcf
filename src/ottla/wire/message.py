"""The base class of messages, and the description of a field.

A message class lists its fields once, for all versions of its API, in `FIELDS`: plain tuples in the order of `Field`,
so that a module of them loads as one constant. On the wire the fields of a version are in the order of the table,
without those that the version does not have; tagged fields follow in the order of their tags.

Types are written as Kafka writes them: int8 int16 int32 int64 uint16 float64 bool uuid string bytes records, the name
of another message class of the same module for a structure, and a leading `[]` for an array of any of these.
"""

import sys
from typing import Any, ClassVar, Final, NamedTuple

FixedDefault = int | float | str | tuple[()] | None
FieldRow = tuple[str, str, int, int, int | None, int | None, FixedDefault]

NEVER: Final = 32767
"""The value of the first flexible version if no version is flexible."""

ZERO_UUID: Final = bytes(16)

EMPTY: Final[list[Any]] = []
"""Default of a list parameter. A message replaces it by a list of its own, so it is never changed."""


class Field(NamedTuple):
    """One row of a `FIELDS` table. Without a default a field starts as null if nullable, else as zero or empty."""

    name: str
    type: str
    first: int
    last: int
    nullable_from: int | None
    tag: int | None
    default: FixedDefault

    @property
    def is_array(self) -> bool:
        return self.type.startswith("[]")

    @property
    def element(self) -> str:
        return self.type.removeprefix("[]")

    @property
    def is_structure(self) -> bool:
        """Whether the element is a structure: only their type names begin with a capital letter."""
        return self.element[0].isupper()

    def is_in(self, version: int) -> bool:
        return self.first <= version <= self.last

    def is_nullable(self, version: int) -> bool:
        return self.nullable_from is not None and version >= self.nullable_from


class Message:
    """A request, a response, or a structure within one. Messages are equal if their class and all fields are."""

    __slots__ = ()

    FIELDS: ClassVar[tuple[FieldRow, ...]] = ()
    VERSIONS: ClassVar[range] = range(0)
    FLEXIBLE_FROM: ClassVar[int] = NEVER

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, row[0]) == getattr(other, row[0]) for row in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{row[0]}={getattr(self, row[0])!r}" for row in self.FIELDS)
        return f"{self.__class__.__name__}({values})"


def fields_of(message_class: type[Message]) -> tuple[Field, ...]:
    return tuple(Field(*row) for row in message_class.FIELDS)


def structure_of(message_class: type[Message], name: str) -> type[Message]:
    """The class of a structure, which is in the module of its message."""
    found: type[Message] = getattr(sys.modules[message_class.__module__], name)
    return found
