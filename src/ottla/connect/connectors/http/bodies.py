"""The URL and the body of a sink's request."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from ottla.connect.connectors.http.settings import list_replacements
from ottla.connect.converters.choice import make_converter
from ottla.connect.data.java_text import to_connect_text
from ottla.connect.data.record import Record
from ottla.connect.errors import RecordError

_PLACE: Final = re.compile(r"\$\{([^}]*)\}")
_MISSING: Final = object()


class BodyMaker:
    """By the settings of a sink."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._is_json = config["request.body.format"] == "json" or config["batch.json.as.array"]
        self._json = make_converter("json", {"schemas.enable": "false", "decimal.format": "NUMERIC"}, False)
        self._replacements = list_replacements(config)

    @property
    def content_type(self) -> str:
        return "application/json" if self._is_json else "text/plain; charset=utf-8"

    def make_url(self, record: Record) -> str:
        """RecordError if the record lacks a part of it."""
        return _PLACE.sub(lambda match: quote(_find(match[1], record), safe=""), self._config["http.api.url"])

    def make_batch_key(self, record: Record) -> str:
        return _PLACE.sub(lambda match: _find(match[1], record), self._config["batch.key.pattern"])

    def make_text(self, record: Record) -> str:
        """RecordError if the value cannot be text."""
        value = record.value
        if self._is_json or not isinstance(value, str | bytes | int | float):
            data = self._json.to_bytes(record.topic, (), record.value_schema, value) or b"null"
            text = data.decode()
        elif isinstance(value, bytes):
            try:
                text = value.decode()
            except UnicodeDecodeError:
                raise RecordError("the value is no text in UTF-8") from None
        else:
            text = to_connect_text(record.value_schema, value)
        for pattern, replacement in self._replacements:
            text = pattern.sub(replacement, text)
        return text

    def join(self, texts: Sequence[str]) -> bytes:
        config = self._config
        if config["batch.json.as.array"]:
            return f"[{','.join(texts)}]".encode()
        return f"{config['batch.prefix']}{config['batch.separator'].join(texts)}{config['batch.suffix']}".encode()


def _find(name: str, record: Record) -> str:
    """What a place of a template stands for."""
    if name == "topic":
        return record.topic
    if name == "key":
        return "" if record.key is None else to_connect_text(record.key_schema, record.key)
    found: Any = record.value
    for part in name.split("."):
        found = found.get(part, _MISSING) if isinstance(found, Mapping) else _MISSING
    if found is _MISSING or found is None or isinstance(found, Mapping | list):
        raise RecordError(f"the record has nothing for ${{{name}}}")
    return to_connect_text(None, found)
