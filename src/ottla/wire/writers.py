"""The compiler of writers: makes a function that appends a message to bytes, for a message class and a version.

Like a reader, a writer is straight code with every structure in place. What a version lacks is left out. A value that
the version cannot say (null where it is not allowed, a number out of range) is `Malformed`, and nothing is appended.

In an array a structure may stand already written, as bytes: what many answers say alike is written once
(`schema.written`).
"""

from __future__ import annotations

from collections.abc import Callable
from struct import calcsize, pack
from struct import error as struct_error
from typing import Any

from ottla.wire.malformed import Malformed
from ottla.wire.message import ZERO_UUID, Field, Message
from ottla.wire.primitives import unsigned_varint
from ottla.wire.source import FEW, FIXED_CODES, Source

Writer = Callable[[bytearray, Any], None]

_HEAD = "def write(out, message):\n    start = len(out)"
_HANDLERS = """\
    except (struct_error, AttributeError, TypeError, ValueError, Malformed) as error:
        del out[start:]
        raise Malformed(f"{title}: {error}") from error
"""


class WriterSource(Source):
    """The source of one writer. A run is a list of (format code, value expression); `out` is the bytearray."""

    def __init__(self, message_class: type[Message], version: int, flexible_from: int | None = None) -> None:
        super().__init__(message_class, version, flexible_from)
        self.run: list[tuple[str, str]] = []
        self.out = "out"
        self.names |= {
            "Malformed": Malformed,
            "pack": pack,
            "struct_error": struct_error,
            "title": f"{message_class.__name__} v{version}",
            "unsigned_varint": unsigned_varint,
            "ZERO_UUID": ZERO_UUID,
        }

    def compile_function(self) -> Writer:
        self.body("message", self.message_class)
        self.flush()
        self.line("pass")
        writer: Writer = self.function(_HEAD, _HANDLERS)
        return writer

    def flush(self) -> None:
        if not self.run:
            return
        codes = [code for code, _ in self.run]
        if codes == ["x"]:
            self.line(f"{self.out}.append(0)")
        else:
            packing = self.local("pack")
            self.names[packing] = self.layout(codes).pack
            values = ", ".join(value for code, value in self.run if code != "x")
            self.line(f"{self.out} += {packing}({values})")
        self.run = []

    def body(self, source: str, message_class: type[Message]) -> None:
        """Write a structure. Its last fixed-size fields may be left in the run."""
        in_place, tagged, _ = self.fields(message_class)
        for field in in_place:
            self.field(f"{source}.{field.name}", message_class, field)
        if self.compact and tagged:
            self.tags(source, message_class, tagged)
        elif self.compact:
            self.run.append(("x", ""))

    def field(self, source: str, owner: type[Message], field: Field) -> None:
        nullable = field.is_nullable(self.version)
        if field.is_array:
            self.array(source, owner, field, nullable)
        elif field.is_structure:
            self.single_structure(source, self.structure(owner, field), field)
        elif field.type == "uuid":
            self.check_uuid(source)
            self.run.append(("16s", source))
        elif field.type in FIXED_CODES:
            self.run.append((FIXED_CODES[field.type], source))
        else:
            self.blob(source, field.type, nullable)

    def check_uuid(self, source: str) -> None:
        # struct would truncate or pad the bytes silently.
        self.line(f"if len({source}) != 16:")
        self.line(f"    raise Malformed({f'{source} is not 16 bytes'!r})")

    def single_structure(self, source: str, structure: type[Message], field: Field) -> None:
        inner = self.local("inner")
        self.line(f"{inner} = {source}")
        if not field.is_nullable(self.version):
            self.body(inner, structure)
            return
        self.flush()
        self.line(f"if {inner} is None:")
        self.line(f"    {self.out}.append({255 if field.tag is None else 0})")
        self.line("else:")
        self.indent()
        self.line(f"{self.out}.append(1)")
        self.body(inner, structure)
        self.flush()
        self.dedent()

    def length(self, size: str, code: str) -> None:
        """Write the length or count in the local variable `size`, -1 for null."""
        if self.compact:
            self.flush()
            self.line(f"if {size} < 127:")
            self.line(f"    {self.out}.append({size} + 1)")
            self.line("else:")
            self.line(f"    {self.out} += unsigned_varint({size} + 1)")
        else:
            self.run.append((code, size))
            self.flush()

    def blob(self, source: str, kind: str, nullable: bool) -> None:
        value, size = self.local("value"), self.local("size")
        encoded = f"{source}.encode()" if kind == "string" else source
        if nullable:
            self.line(f"if {source} is None:")
            self.line(f"    {value} = b''")
            self.line(f"    {size} = -1")
            self.line("else:")
            self.line(f"    {value} = {encoded}")
            self.line(f"    {size} = len({value})")
        else:
            self.line(f"{value} = {encoded}")
            self.line(f"{size} = len({value})")
        if kind == "string" and self.compact:
            self.line(f"if {size} > 32767:")
            self.line(f"    raise Malformed({f'{source} is too long'!r})")
        self.length(size, "h" if kind == "string" else "i")
        self.line(f"{self.out} += {value}")

    def array(self, source: str, owner: type[Message], field: Field, nullable: bool) -> None:
        values, count = self.local("values"), self.local("count")
        self.line(f"{values} = {source}")
        if nullable:
            self.line(f"{count} = -1 if {values} is None else len({values})")
        else:
            self.line(f"{count} = len({values})")
        if field.element in FIXED_CODES and field.element != "uuid":
            self.number_array(values, count, FIXED_CODES[field.element], nullable)
            return
        self.length(count, "i")
        value = self.local("value")
        self.line(f"for {value} in {values} or ():" if nullable else f"for {value} in {values}:")
        self.indent()
        if field.is_structure:
            self.line(f"if {value}.__class__ is bytes:")
            self.line(f"    {self.out} += {value}")
            self.line("    continue")
            self.body(value, self.structure(owner, field))
            self.flush()
        elif field.element == "uuid":
            self.check_uuid(value)
            self.line(f"{self.out} += {value}")
        else:
            self.blob(value, field.element, False)
        self.line("pass")
        self.dedent()

    def number_array(self, values: str, count: str, code: str, nullable: bool) -> None:
        self.flush()
        if not nullable:
            few = f"pack_few_{code}"
            count_code = "B" if self.compact else "i"
            self.names[few] = tuple(self.layout([count_code, code * length]).pack for length in range(FEW))
            self.line(f"if {count} < {FEW}:")
            self.line(f"    {self.out} += {few}[{count}]({count} + {int(self.compact)}, *{values})")
            self.line("else:")
            self.indent()
        self.counted_numbers(values, count, code, nullable)
        if not nullable:
            self.dedent()

    def counted_numbers(self, values: str, count: str, code: str, nullable: bool) -> None:
        spread = f"*({values} or ())" if nullable else f"*{values}"
        # A format cannot have the count -1; nothing follows the count of a null array.
        amount = f"max({count}, 0)" if nullable else count
        if not self.compact:
            self.line(f"{self.out} += pack(f'>i{{{amount}}}{code}', {count}, {spread})")
            return
        self.line(f"if {count} < 127:")
        self.line(f"    {self.out} += pack(f'>B{{{amount}}}{code}', {count} + 1, {spread})")
        self.line("else:")
        self.line(f"    {self.out} += unsigned_varint({count} + 1)")
        self.line(f"    {self.out} += pack(f'>{{{amount}}}{code}', {spread})")

    def tags(self, source: str, owner: type[Message], tagged: list[Field]) -> None:
        """Write the tagged fields that differ from their default."""
        self.flush()
        outer, count, section = self.out, self.local("tags"), self.local("section")
        self.line(f"{count} = 0")
        self.line(f"{section} = b''")
        for field in tagged:
            self.line(f"if {self.is_given(f'{source}.{field.name}', owner, field)}:")
            self.indent()
            self.line(f"{count} += 1")
            if field.type in FIXED_CODES:
                self.fixed_tag(f"{source}.{field.name}", field, section)
            else:
                self.out = self.local("field")
                self.line(f"{self.out} = bytearray()")
                self.field(f"{source}.{field.name}", owner, field)
                self.flush()
                self.line(f"{section} += unsigned_varint({field.tag}) + unsigned_varint(len({self.out})) + {self.out}")
            self.dedent()
        self.out = outer
        self.line(f"{self.out}.append({count})")
        self.line(f"{self.out} += {section}")

    def fixed_tag(self, source: str, field: Field, section: str) -> None:
        """Write a tagged field of fixed size: one `struct` call for tag, size and value."""
        assert field.tag is not None and field.tag < 0x80
        if field.type == "uuid":
            self.check_uuid(source)
        code = FIXED_CODES[field.type]
        packing = self.local("pack")
        self.names[packing] = self.layout(["BB", code]).pack
        self.line(f"{section} += {packing}({field.tag}, {calcsize('>' + code)}, {source})")

    def is_given(self, source: str, owner: type[Message], field: Field) -> str:
        """The expression for: the tagged field differs from its default."""
        if field.default is None and field.nullable_from is not None:
            return f"{source} is not None"
        if field.is_array:
            return f"{source} is None or {source}" if field.nullable_from is not None else source
        if field.is_structure:
            return f"{source} != {self.constant(self.structure(owner, field)())}"
        if field.default is not None:
            return f"{source} != {field.default!r}"
        return f"{source} != ZERO_UUID" if field.type == "uuid" else source
