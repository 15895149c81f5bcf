"""What a search matches: text or a pattern, in keys, values, headers, or one field of a JSON document."""

from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.console.facts.decoding import Decoded, Decoder
from ottla.console.facts.records import FoundRecord, Matcher
from ottla.pipeline import json_text

ANYWHERE, KEY, VALUE, HEADERS, FIELD = "anywhere", "key", "value", "headers", "field"
PLACES = (ANYWHERE, KEY, VALUE, HEADERS, FIELD)
TEXT_MAX = 1_000


class Search(NamedTuple):
    text: str
    place: str = ANYWHERE
    field: str = ""
    """The path of a JSON field; only with FIELD."""
    is_pattern: bool = False


def make_matcher(search: Search, decoder: Decoder, key_format: str, value_format: str) -> Matcher | None:
    """A function that says whether a record matches; None if all do. Raises ValueError for a pattern that is wrong."""
    if not search.text and search.place != FIELD:
        return None
    fits = _make_test(search)

    def in_key(record: FoundRecord) -> bool:
        return record.key is not None and fits(_line(decoder.decode(record.key, key_format)))

    def in_value(record: FoundRecord) -> bool:
        return record.value is not None and fits(_line(decoder.decode(record.value, value_format)))

    def in_headers(record: FoundRecord) -> bool:
        return any(fits(f"{name}={json_text.to_text(value or b'')}") for name, value in record.headers)

    def in_field(record: FoundRecord) -> bool:
        decoded = decoder.decode(record.value, value_format)
        values = json_text.find_field(decoded.content, search.field) if decoded.is_document else ()
        return any(fits(_field_text(value)) for value in values)

    def anywhere(record: FoundRecord) -> bool:
        return in_key(record) or in_value(record) or in_headers(record)

    places: dict[str, Matcher] = {
        ANYWHERE: anywhere,
        KEY: in_key,
        VALUE: in_value,
        HEADERS: in_headers,
        FIELD: in_field,
    }
    return places[search.place]


def _line(decoded: Decoded) -> str:
    """A text is searched as a row shows it: with spaces for line breaks and tabs."""
    return " ".join(decoded.text.split()) if decoded.kind == "text" else decoded.text


def _field_text(value: Any) -> str:
    return str(value) if isinstance(value, str) else json_text.write(value, indented=False)


def _make_test(search: Search) -> Callable[[str], bool]:
    if len(search.text) > TEXT_MAX:
        raise ValueError(f"a search has at most {TEXT_MAX} characters")
    if search.is_pattern:
        import re2  # linear time, whatever the pattern

        options = re2.Options()
        options.log_errors = False
        try:
            pattern = re2.compile(search.text, options)
        except re2.error as error:
            raise ValueError(f"{search.text!r} is not a regular expression: {error}") from None
        return lambda text: pattern.search(text) is not None
    wanted = search.text.casefold()
    return lambda text: wanted in text.casefold()
