"""Values of an Avro schema, by its `arg.properties`, as Confluent's random generator of Avro has them.

`options` (a list), `range` (`min`, `max`), `iteration` (`start`, `restart`, `step`, `initial`), `regex`, `length`,
`odds`, `prefix` and `suffix` are known. Whatever else a schema asks for is refused.
"""

import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from ottla.connect.connectors.datagen.patterns import compile_generator
from ottla.connect.converters.avro_schemas import read_avro_schema, strip_logical_types
from ottla.connect.data.schema import Schema
from ottla.pipeline.formats.avro_schemas import parse_schema

Make = Callable[[Random, int], Any]
"""The value at a position."""

_PROPERTIES: Final = "arg.properties"
_KNOWN: Final = frozenset(("options", "range", "iteration", "regex", "length", "odds", "prefix", "suffix"))
_LENGTH: Final = (8, 17)
_LENGTH_MAX: Final = 100_000
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_INTEGERS: Final = {"int": 1 << 31, "long": 1 << 63}


class Generator:
    """Survives pickling: it is made again from the schema's text."""

    def __init__(self, text: str) -> None:
        """ValueError if the schema is none, or asks for what is not supported."""
        self._text = text
        parsed = parse_schema(text)
        if not isinstance(parsed, dict) or parsed["type"] != "record" or not parsed["fields"]:
            raise ValueError("it has to be a record with fields")
        self.schema, self._convert = read_avro_schema(strip_defaults(parsed))
        self._make = _compile(strip_logical_types(parsed))

    def __reduce__(self) -> tuple[Any, ...]:
        return Generator, (self._text,)

    def make(self, random: Random, position: int) -> Any:
        return self._convert(self._make(random, position))

    def find_key(self, name: str) -> Schema:
        """The schema of a field. ValueError if there is no such field."""
        found = self.schema.find_field(name)
        if found is None:
            raise ValueError(f"the schema has no field {name}")
        return found.schema


def strip_defaults(avro: Any) -> Any:
    """Defaults say nothing about values that are made."""
    if isinstance(avro, list):
        return [strip_defaults(each) for each in avro]
    if not isinstance(avro, dict):
        return avro
    return {name: strip_defaults(each) for name, each in avro.items() if name not in ("default", _PROPERTIES)}


def _compile(avro: Any) -> Make:
    if isinstance(avro, list):
        return _compile_union(avro)
    properties = avro.get(_PROPERTIES) or {}
    if not isinstance(properties, Mapping) or not properties.keys() <= _KNOWN:
        unknown = sorted(properties.keys() - _KNOWN) if isinstance(properties, Mapping) else [str(properties)]
        raise ValueError(f"{_PROPERTIES} has {', '.join(unknown)}, which is not supported")
    kind = avro["type"]
    if "options" in properties:
        options = properties["options"]
        if not isinstance(options, list) or not options:
            raise ValueError(f"options has to be a list with something in it, not {json.dumps(options)}")
        return lambda random, _: random.choice(options)
    if "iteration" in properties:
        return _compile_iteration(properties["iteration"], kind)
    match kind:
        case "record":
            fields = [(each["name"], _compile(each["type"])) for each in avro["fields"]]
            return lambda random, at: {name: make(random, at) for name, make in fields}
        case "array":
            make, length = _compile(avro["items"]), _read_length(properties)
            return lambda random, at: [make(random, at) for _ in range(random.randrange(*length))]
        case "map":
            make, length = _compile(avro["values"]), _read_length(properties)
            return lambda random, at: [
                (f"{_make_word(random, _LENGTH)}{n}", make(random, at)) for n in range(random.randrange(*length))
            ]
        case "enum":
            return lambda random, _: random.choice(avro["symbols"])
        case "null":
            return lambda *_: None
        case "fixed":
            return lambda random, _: random.randbytes(avro["size"])
    return _compile_plain(kind, properties)


def _compile_union(avro: list[Any]) -> Make:
    makes = [_compile(each) for each in avro]
    present = [at for at, each in enumerate(avro) if each["type"] != "null"]
    if len(present) <= 1:
        return lambda random, at: random.choice(makes)(random, at)
    members = [None if each["type"] == "null" else present.index(at) for at, each in enumerate(avro)]

    def make(random: Random, at: int) -> Any:
        chosen = random.randrange(len(makes))
        value = makes[chosen](random, at)
        return None if members[chosen] is None else {f"member{members[chosen]}": value}

    return make


def _compile_plain(kind: str, properties: Mapping[str, Any]) -> Make:
    match kind:
        case "boolean":
            odds = float(properties.get("odds", 0.5))
            return lambda random, _: random.random() < odds
        case "int" | "long":
            least, end = _read_range(properties, -_INTEGERS[kind], _INTEGERS[kind])
            return lambda random, _: random.randrange(int(least), int(end))
        case "float" | "double":
            low, high = _read_range(properties, 0.0, 1.0)
            return lambda random, _: random.uniform(low, high)
        case "bytes":
            length = _read_length(properties)
            return lambda random, _: random.randbytes(random.randrange(*length))
    prefix, suffix = str(properties.get("prefix", "")), str(properties.get("suffix", ""))
    if "regex" in properties:
        write = compile_generator(str(properties["regex"]))
        return lambda random, _: f"{prefix}{write(random)}{suffix}"
    if "range" in properties:
        least, end = _read_range(properties, 0, 1)
        return lambda random, _: f"{prefix}{random.randrange(int(least), int(end))}{suffix}"
    length = _read_length(properties)
    return lambda random, _: f"{prefix}{_make_word(random, length)}{suffix}"


def _compile_iteration(given: Any, kind: str) -> Make:
    """Counts from `start` by `step`, and begins again at `start` before `restart` is reached."""
    if kind not in ("int", "long", "float", "double") or not isinstance(given, Mapping) or "start" not in given:
        raise ValueError(f"iteration is for numbers and needs start, not {json.dumps(given)} for {kind}")
    start, restart = given["start"], given.get("restart")
    step = given.get("step", 1 if restart is None or restart > start else -1)
    first = given.get("initial", start)
    if not step or (restart is not None and (restart - start) / step <= 0):
        raise ValueError(f"iteration never gets from {start} to {restart} by {step}")
    if restart is None:
        return lambda _, at: first + step * at
    span = restart - start
    return lambda _, at: start + (first - start + step * at) % span


def _read_range(properties: Mapping[str, Any], least: float, end: float) -> tuple[float, float]:
    given = properties.get("range", {})
    found = given.get("min", least), given.get("max", end)
    if not found[0] < found[1]:
        raise ValueError(f"range has nothing between {found[0]} and {found[1]}")
    return found


def _read_length(properties: Mapping[str, Any]) -> tuple[int, int]:
    """The least length, and the one above the greatest."""
    given = properties.get("length")
    if given is None:
        return _LENGTH
    least, end = (given, given + 1) if isinstance(given, int) else (given.get("min", 0), given.get("max", _LENGTH[1]))
    if not 0 <= least < end <= _LENGTH_MAX:
        raise ValueError(f"length {json.dumps(given)} is not within 0 to {_LENGTH_MAX}")
    return least, end


def _make_word(random: Random, length: tuple[int, int]) -> str:
    return "".join(random.choices(_LETTERS, k=random.randrange(*length)))
