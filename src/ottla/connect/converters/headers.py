"""SimpleHeaderConverter: headers as text, whose type is read out of the text."""

from collections.abc import Mapping
from typing import Any

from ottla.connect.converters.converter import HeaderConverter
from ottla.connect.data.java_text import to_connect_text
from ottla.connect.data.schema import Schema, Type
from ottla.connect.data.values import parse_text


class SimpleHeaderConverter(HeaderConverter):
    def __init__(self, config: Mapping[str, Any], is_key: bool) -> None:
        """Has no settings."""

    def header_from_bytes(self, topic: str, key: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """Bytes that are not UTF-8 stay bytes."""
        if data is None:
            return None, None
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return Schema(Type.BYTES), data
        return parse_text(text)

    def header_to_bytes(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        return None if value is None else to_connect_text(schema, value).encode(errors="replace")
