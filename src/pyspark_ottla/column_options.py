"""The options for the columns of a read and their formats. Without them, keys and values are bytes.

They are checked before a broker or a schema registry is asked.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.pipeline.formats import DEAD_LETTER, FAIL, ON_BAD
from ottla.pipeline.formats.choice import NAMES as FORMATS
from pyspark_ottla.boundaries import OptionError
from pyspark_ottla.options import READ_OPTIONS, Given, Selection, parse_selection

BINARY = "binary"
INFER = "infer"
DECODABLE = ("key", "value")
REGISTRY_OPTIONS = ("schemaRegistryUser", "schemaRegistryToken", "schemaRegistryTimeout")


class ColumnFormat(NamedTuple):
    """The format of the key or the value."""

    column: str
    name: str
    schema: str | None
    """INFER, the text of a schema, or @ and the name of a file that holds one."""
    message: str
    subject: str

    def option(self, what: str) -> str:
        return f"{self.column}{what}"


class ColumnOptions(NamedTuple):
    columns: tuple[str, ...]
    """The option `columns`, in its order; empty means all."""
    headers: bool
    formats: tuple[ColumnFormat, ...]
    bad_records: str
    dead_letter_topic: str | None
    expand: bool
    registry: Mapping[str, str] | None
    """Settings of the schema registry's client; None without a registry."""


def parse_column_options(options: Mapping[str, str]) -> ColumnOptions:
    """Raises OptionError for the first invalid option."""
    given = Given(options, READ_OPTIONS)
    registry = _parse_registry(given)
    selection = parse_selection(given)
    formats = tuple(form for column in DECODABLE if (form := _format(given, column, registry, selection)) is not None)
    if registry is not None and not any(form.name != "string" for form in formats):
        raise OptionError("schemaRegistry: neither valueFormat nor keyFormat is one that a registry has schemas of")
    expand = given.truth("expandValue", False)
    if expand and not any(form.column == "value" and form.name != "string" for form in formats):
        raise OptionError("expandValue: values have fields only with valueFormat json, avro or protobuf")
    return ColumnOptions(
        tuple(name.strip() for name in (given.text("columns") or "").split(",") if name.strip()),
        given.truth("includeHeaders", False),
        formats,
        *_parse_bad_records(given, formats, selection),
        expand,
        registry,
    )


def _format(given: Given, column: str, registry: Mapping[str, str] | None, selection: Selection) -> ColumnFormat | None:
    name = given.choice(f"{column}Format", (BINARY, *FORMATS), BINARY)
    schema, message = given.text(f"{column}Schema"), (given.text(f"{column}Message") or "").strip()
    has_schema = name not in (BINARY, "string")
    if schema is not None and (not has_schema or not schema.strip()):
        reason = "it is empty" if has_schema else f"{column}Format is {name}, which has no schema"
        raise OptionError(f"{column}Schema: {reason}")
    if message and name != "protobuf":
        raise OptionError(f"{column}Message: only protobuf has messages, and {column}Format is {name}")
    if given.has(f"{column}Subject") and (registry is None or not has_schema):
        raise OptionError(f"{column}Subject: it is for a schema registry, but none is used for the {column}")
    if name == BINARY:
        return None
    if schema is not None and schema.strip().lower() == INFER:
        if name != "json" or registry is not None:
            raise OptionError(f"{column}Schema: only the schema of json without a registry can be inferred")
        schema = INFER
    subject = _parse_subject(given, column, selection) if registry is not None and has_schema and schema is None else ""
    return ColumnFormat(column, name, schema, message, subject)


def _parse_subject(given: Given, column: str, selection: Selection) -> str:
    """The option, or `<topic>-<column>` as the registry's own clients name it."""
    option = f"{column}Subject"
    if (text := (given.text(option) or "").strip()) or given.has(option):
        if not text:
            raise OptionError(f"{option}: it is empty")
        return text
    topics = sorted({*selection.topics, *(where.topic for where in selection.assigned)})
    if len(topics) != 1:
        raise OptionError(f"{option}: not one topic is read, so the subject of the column's schema must be named")
    return f"{topics[0]}-{column}"


def _parse_registry(given: Given) -> Mapping[str, str] | None:
    if not given.has("schemaRegistry"):
        for option in REGISTRY_OPTIONS:
            if given.has(option):
                raise OptionError(f"{option}: there is no schemaRegistry")
        return None
    found = {"schema.registry.url": given.text("schemaRegistry") or ""}
    if (user := given.text("schemaRegistryUser")) is not None:
        if ":" not in user:
            raise OptionError("schemaRegistryUser: it must be name:password")
        found["basic.auth.user.info"] = user
    if (token := given.text("schemaRegistryToken")) is not None:
        found["bearer.auth.token"] = token
    found["schema.registry.request.timeout.ms"] = str(int(given.seconds("schemaRegistryTimeout", "10s") * 1000))
    return found


def _parse_bad_records(given: Given, formats: tuple[ColumnFormat, ...], selection: Selection) -> tuple[str, str | None]:
    bad = given.choice("badRecords", ON_BAD, FAIL)
    topic = given.text("deadLetterTopic")
    if bad != FAIL and not formats:
        raise OptionError("badRecords: nothing is decoded, so no record is bad; set valueFormat or keyFormat")
    if (bad == DEAD_LETTER) != (topic is not None):
        raise OptionError("deadLetterTopic: it goes with badRecords=dead-letter, and that with it")
    if topic is not None and not topic.strip():
        raise OptionError("deadLetterTopic: it names no topic")
    if topic is not None and topic.strip() in selection.topics:
        raise OptionError(f"deadLetterTopic: {topic.strip()!r} is read too, and would never end")
    return bad, topic.strip() if topic is not None else None
