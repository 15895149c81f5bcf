"""Generated Python source: what the compilers of readers and writers share.

Fields of fixed size are not handled one by one: consecutive ones form a run, and a run becomes one `struct` call.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from ottla.wire.message import Field, Message, fields_of, structure_of

FIXED_CODES = {
    "bool": "?",
    "float64": "d",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uuid": "16s",
}

FEW = 9
"""Arrays of fewer numbers than this, as nearly all are, have a prepared `struct` for each length."""


class Source:
    """The lines of one function, the names that they use, and the run of fixed-size fields that is not a line yet."""

    def __init__(self, message_class: type[Message], version: int, flexible_from: int | None = None) -> None:
        """`flexible_from`: for a structure, that of the message it is part of. A whole message has its own."""
        self.message_class = message_class
        self.version = version
        self.compact = version >= (message_class.FLEXIBLE_FROM if flexible_from is None else flexible_from)
        self.names: dict[str, Any] = {}
        self._lines: list[str] = []
        self._indent = 1
        self._locals = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)

    def indent(self) -> None:
        self._indent += 1

    def dedent(self) -> None:
        self._indent -= 1

    def local(self, stem: str) -> str:
        """A new name for a local variable."""
        self._locals += 1
        return f"{stem}{self._locals}"

    def constant(self, value: Any) -> str:
        """A name for a value that the function uses."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = f"{getattr(value, '__name__', 'constant')}_{len(self.names)}"
        self.names[name] = value
        return name

    def layout(self, codes: list[str]) -> Struct:
        return Struct(">" + "".join(codes))

    def fields(self, message_class: type[Message]) -> tuple[list[Field], list[Field], list[Field]]:
        """The plain fields of this version, its tagged fields, and the fields that it does not have."""
        every = fields_of(message_class)
        present = [field for field in every if field.is_in(self.version)]
        absent = [field for field in every if not field.is_in(self.version)]
        tagged = sorted((field for field in present if field.tag is not None), key=lambda field: field.tag or 0)
        return [field for field in present if field.tag is None], tagged, absent

    def structure(self, owner: type[Message], field: Field) -> type[Message]:
        return structure_of(owner, field.element)

    def function(self, head: str, handlers: str) -> Any:
        """Compile the lines as the body of a `try` in the function with this `head`."""
        source = f"{head}\n    try:\n" + "\n".join(f"    {line}" for line in self._lines) + f"\n{handlers}"
        name = f"<{type(self).__name__} of {self.message_class.__name__} v{self.version}>"
        exec(compile(source, name, "exec"), self.names)
        return self.names[head.split("def ")[1].split("(")[0]]
