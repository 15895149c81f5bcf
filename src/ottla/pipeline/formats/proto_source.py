"""Reads the source of a .proto file: what `protoc` does, for schemas that a registry has only as text.

Confluent's registry gives descriptors (`format=serialized`); Apicurio, for one, gives the source. Everything is taken
over that says how the bytes of a message are read: messages, groups, maps, enums, extensions, oneofs, presence,
defaults, packing and the features of editions. Services and options of the user's own are left out. The names of types
are as in the source: google.protobuf's pool resolves them.

The entries of maps come behind the other messages that a message contains: writers count without them when they say
which message of its schema a value is.
"""

from typing import TYPE_CHECKING, Any

from ottla.pipeline.formats.proto_tokens import END, NUMBER, SYMBOL, TEXT, WORD, Token, read_integer, read_text, split

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

DEPTH_MAX = 50
NUMBERS_END = 1 << 29
"""The numbers of fields are below it."""

_OPTIONAL, _REQUIRED, _REPEATED = "optional", "required", "repeated"
_LABELS = {_OPTIONAL: 1, _REQUIRED: 2, _REPEATED: 3}
_GROUP, _BYTES = 10, 12
_SCALARS = {
    **{"double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "fixed64": 6, "fixed32": 7, "bool": 8},
    **{"string": 9, "bytes": _BYTES, "uint32": 13, "sfixed32": 15, "sfixed64": 16, "sint32": 17, "sint64": 18},
}
_FRACTIONS = ("double", "float")
_PRINTABLE = range(32, 127)


def parse_source(text: str) -> "FileDescriptorProto":
    """The descriptor of a .proto file, without a name. ValueError, with the line, if it is none."""
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        self._tokens = split(text)
        self._at = 0
        self._depth = 0
        self._file = FileDescriptorProto()

    def parse(self) -> "FileDescriptorProto":
        file = self._file
        while self._next.kind != END:
            word = self._take().text
            if word in ("syntax", "edition"):
                self._read_syntax(word)
            elif word == "package":
                file.package = self._read_name()
                self._expect(";")
            elif word == "import":
                self._read_import()
            elif word == "option":
                self._read_option(file.options)
            elif word == "message":
                self._read_message(file.message_type.add())
            elif word == "enum":
                self._read_enum(file.enum_type.add())
            elif word == "extend":
                self._read_extend(file.extension, file.message_type)
            elif word == "service":
                self._take()
                self._skip_block()
            elif word != ";":
                self._back()
                raise self._make_error("a message, an enum or an import")
        return file

    def _read_syntax(self, word: str) -> None:
        self._expect("=")
        text = self._read_text().decode(errors="replace")
        self._expect(";")
        if word == "edition":
            from google.protobuf import descriptor_pb2

            self._file.syntax = "editions"
            try:
                self._file.edition = descriptor_pb2.Edition.Value(f"EDITION_{text}")
            except (ValueError, AttributeError):
                raise ValueError(f"edition {text!r} is not known to the installed package protobuf") from None
        elif text == "proto3":
            self._file.syntax = text
        elif text != "proto2":
            raise ValueError(f"syntax {text!r} is neither proto2 nor proto3")

    def _read_import(self) -> None:
        word = self._take().text if self._next.kind == WORD else ""
        if word == "public":
            self._file.public_dependency.append(len(self._file.dependency))
        self._file.dependency.append(self._read_text().decode(errors="replace"))
        self._expect(";")

    # Messages

    def _read_message(self, message: "DescriptorProto") -> None:
        message.name = self._read_word()
        self._read_body(message)

    def _read_body(self, message: "DescriptorProto") -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ValueError(f"line {self._next.line}: messages are nested deeper than {DEPTH_MAX} levels")
        entries: list[DescriptorProto] = []
        self._expect("{")
        while not self._accept("}"):
            self._read_element(message, entries)
        message.nested_type.extend(entries)
        for field in message.field:
            if field.proto3_optional:  # presence is a oneof with one field, behind the others
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")
        self._depth -= 1

    def _read_element(self, message: "DescriptorProto", entries: "list[DescriptorProto]") -> None:
        word, following = self._take().text, self._next.text
        if word == ";":
            return
        if following not in ("=", "."):  # otherwise a type that is named like a word of the language
            if word == "message":
                return self._read_message(message.nested_type.add())
            if word == "enum":
                return self._read_enum(message.enum_type.add())
            if word == "extend":
                return self._read_extend(message.extension, message.nested_type)
            if word == "extensions":
                return self._read_extensions(message)
            if word == "reserved":
                return self._skip_statement()
            if word == "option":
                return self._read_option(message.options)
            if word == "oneof":
                return self._read_oneof(message)
            if word == "map" and following == "<":
                entries.append(self._read_map(message))
                return None
        self._back()
        self._read_field(message.field.add(), message.nested_type)
        return None

    def _read_field(self, field: "FieldDescriptorProto", groups: Any, *, labelled: bool = True) -> None:
        """`groups` is where the message of a group is added."""
        label = self._next.text if labelled and self._next.text in _LABELS else ""
        if label:
            self._take()
        field.label = _LABELS[label or _OPTIONAL]
        if label == _OPTIONAL and self._file.syntax == "proto3":
            field.proto3_optional = True
        kind = self._read_name()
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        elif kind == "group":
            field.type = _GROUP
        else:
            field.type_name = kind
        field.name = self._read_word()
        self._expect("=")
        field.number = self._read_integer()
        self._read_field_options(field, kind)
        if kind == "group":
            group = groups.add(name=field.name)
            field.type_name, field.name = field.name, field.name.lower()
            self._read_body(group)
        else:
            self._expect(";")

    def _read_map(self, message: "DescriptorProto") -> "DescriptorProto":
        """Adds the field. Returns the message of its entries."""
        from google.protobuf.descriptor_pb2 import DescriptorProto

        self._expect("<")
        kinds = [self._read_name()]
        self._expect(",")
        kinds.append(self._read_name())
        self._expect(">")
        field = message.field.add(label=_LABELS[_REPEATED], name=self._read_word())
        self._expect("=")
        field.number = self._read_integer()
        self._read_field_options(field, "map")
        self._expect(";")
        field.type_name = "".join(part[:1].upper() + part[1:] for part in field.name.split("_")) + "Entry"
        entry = DescriptorProto(name=field.type_name)
        entry.options.map_entry = True
        for number, (name, kind) in enumerate(zip(("key", "value"), kinds, strict=True), 1):
            part = entry.field.add(name=name, number=number, label=_LABELS[_OPTIONAL])
            if kind in _SCALARS:
                part.type = _SCALARS[kind]
            else:
                part.type_name = kind
        return entry

    def _read_oneof(self, message: "DescriptorProto") -> None:
        index = len(message.oneof_decl)
        oneof = message.oneof_decl.add(name=self._read_word())
        self._expect("{")
        while not self._accept("}"):
            if self._accept("option"):
                self._read_option(oneof.options)
            elif not self._accept(";"):
                field = message.field.add(oneof_index=index)
                self._read_field(field, message.nested_type, labelled=False)

    def _read_extend(self, extensions: Any, groups: Any) -> None:
        extended = self._read_name()
        self._expect("{")
        while not self._accept("}"):
            if not self._accept(";"):
                self._read_field(extensions.add(extendee=extended), groups)

    def _read_extensions(self, message: "DescriptorProto") -> None:
        while True:
            start = end = self._read_integer()
            if self._accept("to"):
                end = NUMBERS_END - 1 if self._accept("max") else self._read_integer()
            message.extension_range.add(start=start, end=end + 1)
            if not self._accept(","):
                break
        self._skip_statement()

    def _read_enum(self, enum: Any) -> None:
        enum.name = self._read_word()
        self._expect("{")
        while not self._accept("}"):
            word = self._take()
            if word.text == "option" and self._next.text != "=":
                self._read_option(enum.options)
            elif word.text == "reserved" and self._next.text != "=":
                self._skip_statement()
            elif word.kind == WORD:
                self._expect("=")
                enum.value.add(name=word.text, number=self._read_integer())
                self._skip_statement()
            elif word.text != ";":
                self._back()
                raise self._make_error("a value of the enum")

    # Options

    def _read_option(self, options: Any) -> None:
        path = self._read_option_name()
        self._expect("=")
        _set_option(options, path, self._read_constant())
        self._expect(";")

    def _read_field_options(self, field: "FieldDescriptorProto", kind: str) -> None:
        if not self._accept("["):
            return
        while True:
            path = self._read_option_name()
            self._expect("=")
            value = self._read_constant()
            if path == ["default"]:
                field.default_value = _write_default(value, kind)
            elif path == ["json_name"] and isinstance(value, bytes):
                field.json_name = value.decode(errors="replace")
            else:
                _set_option(field.options, path, value)
            if not self._accept(","):
                break
        self._expect("]")

    def _read_option_name(self) -> list[str]:
        """Empty for an option of the user's own."""
        path, is_custom = [], False
        while True:
            if self._accept("("):
                is_custom = True
                self._read_name()
                self._expect(")")
            else:
                path.append(self._read_word())
            if not self._accept("."):
                return [] if is_custom else path

    def _read_constant(self) -> bytes | str | None:
        """Bytes of a text; the words of anything else; None for an aggregate."""
        if self._next.text == "{":
            self._skip_block()
            return None
        if self._next.kind == TEXT:
            return self._read_text()
        sign = "-" if self._accept("-") else ""
        if not sign:
            self._accept("+")
        if self._next.kind == NUMBER:
            return sign + self._take().text
        return sign + self._read_name()

    # Tokens

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._next
        if token.kind == END:
            raise self._make_error("more")
        self._at += 1
        return token

    def _back(self) -> None:
        self._at -= 1

    def _accept(self, text: str) -> bool:
        if self._next.text != text or self._next.kind not in (SYMBOL, WORD):
            return False
        self._at += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._make_error(repr(text))

    def _make_error(self, wanted: str) -> ValueError:
        found = repr(self._next.text) if self._next.kind != END else "the end"
        return ValueError(f"line {self._next.line}: {found} where {wanted} must be")

    def _read_word(self) -> str:
        if self._next.kind != WORD:
            raise self._make_error("a name")
        return self._take().text

    def _read_name(self) -> str:
        """A name with dots; one at its beginning says that it is a full name."""
        name = "." if self._accept(".") else ""
        name += self._read_word()
        while self._accept("."):
            name += "." + self._read_word()
        return name

    def _read_text(self) -> bytes:
        """Texts that follow each other are one."""
        if self._next.kind != TEXT:
            raise self._make_error("a text")
        found = b""
        while self._next.kind == TEXT:
            found += read_text(self._take().text)
        return found

    def _read_integer(self) -> int:
        sign = -1 if self._accept("-") else 1
        if self._next.kind != NUMBER:
            raise self._make_error("a number")
        number = self._next
        try:
            found = sign * read_integer(number.text)
        except ValueError:
            raise self._make_error("a whole number") from None
        if not -NUMBERS_END * 4 <= found < NUMBERS_END * 4:
            raise self._make_error("a number of 32 bits")
        self._at += 1
        return found

    def _skip_statement(self) -> None:
        """Up to the semicolon, over blocks."""
        while not self._accept(";"):
            if self._next.text == "{" and self._next.kind == SYMBOL:
                self._skip_block()
            else:
                self._take()

    def _skip_block(self) -> None:
        self._expect("{")
        open_count = 1
        while open_count:
            token = self._take()
            if token.kind == SYMBOL:
                open_count += (token.text == "{") - (token.text == "}")


def _set_option(options: Any, path: list[str], value: bytes | str | None) -> None:
    """Sets an option that Protobuf itself knows; others are left out."""
    if not path or value is None:
        return
    for name in path[:-1]:
        field = options.DESCRIPTOR.fields_by_name.get(name)
        if field is None or field.message_type is None:
            return
        options = getattr(options, name)
    field = options.DESCRIPTOR.fields_by_name.get(path[-1])
    if field is None or field.message_type is not None:
        return
    try:
        if field.enum_type is not None:
            setattr(options, path[-1], field.enum_type.values_by_name[str(value)].number)
        elif field.type == field.TYPE_BOOL:
            setattr(options, path[-1], value == "true")
        elif isinstance(value, bytes):
            setattr(options, path[-1], value.decode(errors="replace"))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ValueError(f"option {'.'.join(path)} cannot be {value!r}") from None


def _write_default(value: bytes | str | None, kind: str) -> str:
    """As descriptors have it: numbers in decimal, bytes with escapes."""
    if isinstance(value, bytes):
        if _SCALARS.get(kind) != _BYTES:
            return value.decode(errors="replace")
        return "".join(chr(each) if each in _PRINTABLE and each not in b"\\\"'" else f"\\{each:03o}" for each in value)
    if value is None:
        raise ValueError("a default is not an aggregate")
    sign, digits = ("-", value[1:]) if value.startswith("-") else ("", value)
    if not digits[:1].isdigit() or kind in _FRACTIONS:
        return value
    return sign + str(read_integer(digits))
