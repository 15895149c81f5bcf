"""The compiler of readers: makes a function from bytes to messages for a message class and a version.

The function is straight code with every structure inlined, and it trusts nothing that it reads. It compares a length
with the remaining bytes before it takes a slice, and a count times the smallest size of an element before it starts a
list. Reading past the end raises `struct.error` or IndexError, which become `Malformed` in one place.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import calcsize, unpack_from
from struct import error as struct_error
from typing import Any

from ottla.wire.malformed import Malformed
from ottla.wire.message import ZERO_UUID, Field, Message, structure_of
from ottla.wire.primitives import Bytes, read_unsigned_varint
from ottla.wire.source import FEW, FIXED_CODES, Source

LONGEST_STRING = 32767
REPEATED = ("DescribeConfigsResponse.results.configs",)
"""Arrays that are mostly equal to the one before: of 10,000 topics nearly all have the default settings. Clients read
them once, compare bytes after that, and get the same list again."""

Reader = Callable[[Bytes, int], tuple[Any, int]]

_ZEROES = {"bool": "False", "bytes": "b''", "float64": "0.0", "records": "b''", "string": "''", "uuid": "ZERO_UUID"}
_HEAD = "def read(buffer, position):"
_HANDLERS = """\
    except (struct_error, IndexError):
        raise Malformed(f"{title}: ends too early, at {position} of {end} bytes") from None
    except UnicodeDecodeError as error:
        raise Malformed(f"{title}: text that is not UTF-8 near {position}: {error}") from None
"""


def skip_tags(buffer: Bytes, position: int, end: int, title: str) -> int:
    """Skip the tagged fields of a structure that has none in its schema. They begin at `position` with their number."""
    count, position = read_unsigned_varint(buffer, position)
    last = -1
    for _ in range(count):
        tag, position = read_unsigned_varint(buffer, position)
        size, position = read_unsigned_varint(buffer, position)
        position += size
        if tag <= last or position > end:
            raise Malformed(f"{title}: tagged field {tag} of {size} bytes after {last}, {end - position} bytes left")
        last = tag
    return position


class ReaderSource(Source):
    """The source of one reader. A run is a list of (format code, assignment target)."""

    def __init__(self, message_class: type[Message], version: int) -> None:
        super().__init__(message_class, version)
        self.title = f"{message_class.__name__} v{version}"
        self.run: list[tuple[str, str]] = []
        self.has_records = "records" in wire_types(message_class, version)
        self.names |= {
            "Malformed": Malformed,
            "new": object.__new__,
            "read_unsigned_varint": read_unsigned_varint,
            "skip_tags": skip_tags,
            "struct_error": struct_error,
            "title": self.title,
            "unpack_from": unpack_from,
            "ZERO_UUID": ZERO_UUID,
        }

    def compile_function(self) -> Reader:
        # A bytearray is faster to index and to slice than a view of it; only records are worth a view.
        if self.has_records:
            self.line("view = memoryview(buffer)")
        else:
            self.line("if buffer.__class__ is memoryview:")
            self.line("    buffer = bytes(buffer)")
        self.line("end = len(buffer)")
        if any(path.startswith(f"{self.message_class.__name__}.") for path in REPEATED):
            self.line("known = None")
        self.body("message", self.message_class, "")
        self.line("return message, position")
        reader: Reader = self.function(_HEAD, _HANDLERS)
        return reader

    def flush(self) -> None:
        if not self.run:
            return
        if [code for code, _ in self.run] == ["B"]:
            self.line(f"{self.run[0][1]} = buffer[position]")
            self.line("position += 1")
        else:
            layout = self.layout([code for code, _ in self.run])
            targets = ", ".join(target for _, target in self.run)
            unpack = self.local("unpack")
            self.names[unpack] = layout.unpack_from
            self.line(f"({targets},) = {unpack}(buffer, position)")
            self.line(f"position += {layout.size}")
        self.run = []

    def refuse(self, condition: str, path: str, reason: str) -> None:
        self.line(f"if {condition}:")
        self.line(f"    raise Malformed({f'{self.title}: {path}: {reason}'!r})")

    def body(self, target: str, message_class: type[Message], path: str) -> None:
        """Read a structure with its tagged fields. Nothing is left in the run."""
        in_place, tagged, absent = self.fields(message_class)
        self.line(f"{target} = new({self.constant(message_class)})")
        for field in (*absent, *tagged):
            self.line(f"{target}.{field.name} = {self.default(message_class, field)}")
        for field in in_place:
            self.field(f"{target}.{field.name}", message_class, field, f"{path}{field.name}")
        if self.compact:
            self.tags(target, message_class, tagged, path)
        self.flush()

    def default(self, owner: type[Message], field: Field) -> str:
        if field.is_array:
            return "None" if field.default is None and field.nullable_from is not None else "[]"
        if field.is_structure and field.default == ():  # nullable, but its default is an empty one
            return f"{self.constant(self.structure(owner, field))}()"
        if field.default is not None:
            return repr(field.default)
        if field.nullable_from is not None:
            return "None"
        if field.is_structure:
            return f"{self.constant(self.structure(owner, field))}()"
        return _ZEROES.get(field.type, "0")

    def field(self, target: str, owner: type[Message], field: Field, path: str) -> None:
        nullable = field.is_nullable(self.version)
        if field.is_array and f"{self.message_class.__name__}.{path}" in REPEATED:
            self.repeated_array(target, owner, field, path)
        elif field.is_array:
            self.array(target, owner, field, path)
        elif field.is_structure:
            self.single_structure(target, self.structure(owner, field), field, path)
        elif field.type in FIXED_CODES:
            self.run.append((FIXED_CODES[field.type], target))
        else:
            self.blob(target, field.type, nullable, path)

    def single_structure(self, target: str, structure: type[Message], field: Field, path: str) -> None:
        """A nullable structure is preceded by a byte: null is a negative one, or zero if the field is tagged."""
        inner = self.local("inner")
        nullable = field.is_nullable(self.version)
        if nullable:
            mark = self.local("mark")
            self.run.append(("b", mark))
            self.flush()
            self.line(f"{target} = None")
            self.line(f"if {mark} >= {0 if field.tag is None else 1}:")
            self.indent()
        else:
            self.flush()
        self.body(inner, structure, f"{path}.")
        self.line(f"{target} = {inner}")
        if nullable:
            self.dedent()

    def length(self, code: str, nullable: bool, path: str) -> str:
        """Read a length or a count into a local variable: -1 for null. Other negative values are refused."""
        size = self.local("size")
        if self.compact:
            self.run.append(("B", size))
            self.flush()
            self.line(f"if {size} > 127:")
            self.line(f"    {size}, position = read_unsigned_varint(buffer, position - 1)")
            self.line(f"{size} -= 1")
        else:
            self.run.append((code, size))
            self.flush()
        if not nullable:
            self.refuse(f"{size} < 0", path, "null or negative length")
        elif not self.compact:
            self.refuse(f"{size} < -1", path, "negative length")
        return size

    def begin_nullable(self, target: str, size: str, nullable: bool) -> None:
        if nullable:
            self.line(f"if {size} < 0:")
            self.line(f"    {target} = None")
            self.line("else:")
            self.indent()

    def end_nullable(self, nullable: bool) -> None:
        if nullable:
            self.dedent()

    def blob(self, target: str, kind: str, nullable: bool, path: str) -> None:
        """Read a string, bytes or records."""
        size = self.length("h" if kind == "string" else "i", nullable, path)
        self.begin_nullable(target, size, nullable)
        if kind == "string" and self.compact:
            self.refuse(f"{size} > {LONGEST_STRING}", path, "string too long")
        self.line(f"stop = position + {size}")
        self.refuse("stop > end", path, "longer than the bytes left")
        piece = "buffer[position:stop]"
        if kind == "records":
            self.line(f"{target} = view[position:stop]")
        elif kind == "bytes":
            self.line(f"{target} = bytes({piece})")
        else:
            self.line(f"{target} = str({piece}, 'utf-8')" if self.has_records else f"{target} = {piece}.decode()")
        self.line("position = stop")
        self.end_nullable(nullable)

    def array(self, target: str, owner: type[Message], field: Field, path: str) -> None:
        nullable = field.is_nullable(self.version)
        count = self.length("i", nullable, path)
        self.begin_nullable(target, count, nullable)
        if field.element in FIXED_CODES:
            self.fixed_array(target, count, field.element, path)
        else:
            self.variable_array(target, count, owner, field, path)
        self.end_nullable(nullable)

    def repeated_array(self, target: str, owner: type[Message], field: Field, path: str) -> None:
        """Read an array. If its bytes are those of the array before it, it is the same list."""
        self.flush()
        self.line("if known and buffer.startswith(known, position):")
        self.line(f"    {target} = repeated")
        self.line("    position += len(known)")
        self.line("else:")
        self.indent()
        self.line("begin = position")
        self.array(target, owner, field, path)
        self.line(f"known, repeated = buffer[begin:position], {target}")
        self.dedent()

    def fixed_array(self, target: str, count: str, element: str, path: str) -> None:
        code = FIXED_CODES[element]
        self.line(f"stop = position + {count} * {calcsize('>' + code)}")
        self.refuse("stop > end", path, "more elements than bytes left")
        if element == "uuid":
            self.line(f"{target} = [bytes(buffer[i:i + 16]) for i in range(position, stop, 16)]")
        else:
            few = f"unpack_few_{code}"
            self.names[few] = tuple(self.layout([code * length]).unpack_from for length in range(FEW))
            self.line(f"if {count} < {FEW}:")
            self.line(f"    {target} = list({few}[{count}](buffer, position))")
            self.line("else:")
            self.line(f"    {target} = list(unpack_from(f'>{{{count}}}{code}', buffer, position))")
        self.line("position = stop")

    def variable_array(self, target: str, count: str, owner: type[Message], field: Field, path: str) -> None:
        smallest = smallest_element(owner, field, self.version, self.compact)
        self.refuse(f"{count} * {smallest} > end - position", path, "more elements than bytes left")
        values, value = self.local("values"), self.local("value")
        self.line(f"{values} = {target} = []")
        self.line(f"for _ in range({count}):")
        self.indent()
        if field.is_structure:
            self.body(value, self.structure(owner, field), f"{path}.")
        else:
            self.blob(value, field.element, False, path)
        self.line(f"{values}.append({value})")
        self.dedent()

    def tags(self, target: str, message_class: type[Message], tagged: list[Field], path: str) -> None:
        count = self.local("tags")
        self.run.append(("B", count))
        self.flush()
        self.line(f"if {count}:")
        self.indent()
        if tagged:
            self.known_tags(target, message_class, tagged, path, count)
        else:
            self.line("position = skip_tags(buffer, position - 1, end, title)")
        self.dedent()

    def known_tags(self, target: str, owner: type[Message], tagged: list[Field], path: str, count: str) -> None:
        last, tag, stop = self.local("last"), self.local("tag"), self.local("stop")
        self.line(f"{count}, position = read_unsigned_varint(buffer, position - 1)")
        self.line(f"{last} = -1")
        self.line(f"for _ in range({count}):")
        self.indent()
        self.line(f"{tag}, position = read_unsigned_varint(buffer, position)")
        self.line(f"{stop}, position = read_unsigned_varint(buffer, position)")
        self.line(f"{stop} += position")
        self.refuse(f"{tag} <= {last} or {stop} > end", f"{path}tags", "out of order or longer than the bytes left")
        self.line(f"{last} = {tag}")
        for number, field in enumerate(tagged):
            self.line(f"{'elif' if number else 'if'} {tag} == {field.tag}:")
            self.indent()
            self.field(f"{target}.{field.name}", owner, field, f"{path}{field.name}")
            self.flush()
            self.dedent()
        self.line("else:")
        self.line(f"    position = {stop}")
        self.refuse(f"position != {stop}", f"{path}tags", "a field shorter or longer than its size says")
        self.dedent()


def wire_types(message_class: type[Message], version: int) -> list[str]:
    """The types of all fields of the version, at any depth."""
    found = []
    for row in message_class.FIELDS:
        field = Field(*row)
        if field.is_in(version):
            found.append(field.element)
            if field.is_structure:
                found += wire_types(structure_of(message_class, field.element), version)
    return found


def smallest_element(owner: type[Message], field: Field, version: int, compact: bool) -> int:
    """The smallest size of one element of an array."""
    if field.is_structure:
        return smallest_structure(structure_of(owner, field.element), version, compact)
    if field.element in FIXED_CODES:
        return calcsize(">" + FIXED_CODES[field.element])
    return 1 if compact else 2 if field.element == "string" else 4


def smallest_structure(message_class: type[Message], version: int, compact: bool) -> int:
    size = 1 if compact else 0
    for row in message_class.FIELDS:
        field = Field(*row)
        if not field.is_in(version) or field.tag is not None:
            continue
        if field.is_array:
            size += 1 if compact else 4
        elif field.is_structure and field.is_nullable(version):
            size += 1
        else:
            size += smallest_element(message_class, field, version, compact)
    return size
