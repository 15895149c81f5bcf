"""Random messages of any class and version: the fields that the version has, filled to a modest depth and size."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from random import Random
from typing import Any

import ottla.wire.messages
from ottla.wire.message import ZERO_UUID, Field, Message, fields_of, structure_of

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
STRUCTURES = (0, 1, 1, 2, 3)
PLAIN_VALUES = (0, 1, 3, 8, 9, 126, 127)
TEXTS = ("", "a", "orders", "größe", "日本語", "x" * 126, "x" * 127, "x" * 128, "ü" * 300)


def message_classes() -> Iterator[type[Message]]:
    """Every request, response and data schema."""
    for module_info in iter_modules(ottla.wire.messages.__path__):
        module = import_module(f"ottla.wire.messages.{module_info.name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Message) and value.VERSIONS:
                yield value


def classes_and_versions() -> list[tuple[type[Message], int]]:
    return [(message_class, version) for message_class in message_classes() for version in message_class.VERSIONS]


def arbitrary(message_class: type[Message], version: int, random: Random, tame: bool = False) -> Any:
    """Build a random message. A tame one has only error codes and times that kio can represent."""
    message = message_class()
    for field in fields_of(message_class):
        if field.is_in(version):
            setattr(message, field.name, _field_value(message_class, field, version, random, tame))
    return message


def _field_value(owner: type[Message], field: Field, version: int, random: Random, tame: bool) -> Any:
    if field.is_nullable(version) and random.random() < 0.25:
        return None
    if field.tag is not None and random.random() < 0.4:
        return getattr(owner(), field.name)
    if field.is_array:
        size = random.choice(STRUCTURES if field.is_structure else PLAIN_VALUES)
        return [_value(owner, field, version, random, tame) for _ in range(size)]
    return _value(owner, field, version, random, tame)


def _value(owner: type[Message], field: Field, version: int, random: Random, tame: bool) -> Any:
    if field.is_structure:
        return arbitrary(structure_of(owner, field.element), version, random, tame)
    match field.element:
        case "string":
            return random.choice(TEXTS)
        case "bytes" | "records":
            return random.randbytes(random.choice((0, 1, 20, 130)))
        case "uuid":
            return random.choice((ZERO_UUID, random.randbytes(16)))
        case "bool":
            return random.random() < 0.5
        case "float64":
            return random.uniform(-1e9, 1e9)
        case "uint16":
            return random.choice((0, 1, 32768, 65535))
    return _integer(field, random, tame)


def _integer(field: Field, random: Random, tame: bool) -> int:
    if tame and field.name.endswith("error_code"):
        return random.choice((0, -1, 1, 56, 133))
    if tame and field.name.endswith("_ms"):
        return random.choice((0, 1, 60_000, 1_760_000_000_000 if field.element == "int64" else 2**31 - 1))
    highest = 2 ** (BITS[field.element] - 1) - 1
    return random.choice((0, 1, -1, highest, -highest - 1, random.randint(-highest - 1, highest)))
