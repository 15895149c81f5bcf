"""Makes the converter that a setting names: by Kafka's or Confluent's class name, or by a short name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.connect.converters.avro_converter import AvroConverter
from ottla.connect.converters.converter import Converter, HeaderConverter, ValueHeaderConverter
from ottla.connect.converters.headers import SimpleHeaderConverter
from ottla.connect.converters.json_converter import JsonConverter
from ottla.connect.converters.json_schema_converter import JsonSchemaConverter
from ottla.connect.converters.primitives import (
    BooleanConverter,
    ByteArrayConverter,
    DoubleConverter,
    FloatConverter,
    IntegerConverter,
    LongConverter,
    ShortConverter,
    StringConverter,
)
from ottla.connect.converters.protobuf_converter import ProtobufConverter
from ottla.connect.errors import BadConfig
from ottla.connect.settings.definition import Settings
from ottla.connect.settings.parsing import parse


@dataclass(frozen=True)
class ConverterKind:
    """A converter that can be named in a setting."""

    class_names: tuple[str, ...]
    """Kafka's or Confluent's, the first is the one to show."""
    short_names: tuple[str, ...]
    settings: Settings
    make: Callable[[Mapping[str, Any], bool], Converter | HeaderConverter]
    """With the parsed settings, and whether keys are converted."""


def _of_kafka(package: str, kind: Any, *short_names: str) -> ConverterKind:
    name = kind.__name__
    return ConverterKind((f"{package}.{name}",), (name, *short_names), kind.settings, kind)


_CONVERTERS: Final = "org.apache.kafka.connect.converters"
_STORAGE: Final = "org.apache.kafka.connect.storage"

CONVERTERS: Final = (
    _of_kafka("org.apache.kafka.connect.json", JsonConverter, "json"),
    _of_kafka(_STORAGE, StringConverter, "string"),
    _of_kafka(_CONVERTERS, ByteArrayConverter, "bytes"),
    _of_kafka(_CONVERTERS, BooleanConverter, "boolean"),
    _of_kafka(_CONVERTERS, ShortConverter, "short"),
    _of_kafka(_CONVERTERS, IntegerConverter, "integer"),
    _of_kafka(_CONVERTERS, LongConverter, "long"),
    _of_kafka(_CONVERTERS, FloatConverter, "float"),
    _of_kafka(_CONVERTERS, DoubleConverter, "double"),
    _of_kafka("io.confluent.connect.avro", AvroConverter, "avro"),
    _of_kafka("io.confluent.connect.json", JsonSchemaConverter, "json-schema"),
    _of_kafka("io.confluent.connect.protobuf", ProtobufConverter, "protobuf"),
)
"""Converters of keys and values. They convert headers too."""

HEADER_CONVERTERS: Final = (_of_kafka(_STORAGE, SimpleHeaderConverter, "simple"),)
"""Converters of headers only."""


def find_converter(name: str, kinds: tuple[ConverterKind, ...] = CONVERTERS) -> ConverterKind:
    """The converter with a class name or a short name. BadConfig if there is none."""
    for kind in kinds:
        if name in kind.class_names or name in kind.short_names:
            return kind
    known = ", ".join(each.short_names[0] for each in kinds)
    raise BadConfig(f"there is no converter {name!r}; there are {known}")


def make_converter(name: str, config: Mapping[str, str], is_key: bool) -> Converter:
    """`config` has the converter's settings without the prefix `key.converter.` or `value.converter.`."""
    kind = find_converter(name)
    made = kind.make(parse(kind.settings, config), is_key)
    assert isinstance(made, Converter)
    return made


def make_header_converter(name: str, config: Mapping[str, str]) -> HeaderConverter:
    kind = find_converter(name, (*HEADER_CONVERTERS, *CONVERTERS))
    made = kind.make(parse(kind.settings, config), False)
    return made if isinstance(made, HeaderConverter) else ValueHeaderConverter(made)
