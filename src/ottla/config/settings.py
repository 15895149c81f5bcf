"""How settings are declared, parsed from text, checked and rendered: the base of all tables of settings.

A class of settings is its own table: `segment_bytes = Setting(INT, 1 << 30, at_least(1 << 20), doc="...")` declares
`segment.bytes`. An instance has every value as a plain attribute that hides the descriptor of the same name, so to read
a setting on a hot path costs no more than to read any attribute.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, ClassVar, Generic, Never, Self, TypeVar, overload

T = TypeVar("T")
K = TypeVar("K", covariant=True)

Check = Callable[[Any], str | None]
"""Returns what is wrong with a value, or None."""


class ConfigError(ValueError):
    """A setting is not valid. The message is one line that names the setting."""


class UpdateMode(Enum):
    """Whether a setting can be changed while the broker runs, for one broker or for all."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class ConfigSource(IntEnum):
    """Where a value was set, with Kafka's numbers."""

    TOPIC = 1
    ONE_BROKER = 2
    """Set for this broker at run time."""
    ALL_BROKERS = 3
    """Set for all brokers at run time."""
    STARTED_WITH = 4
    """Set in the properties file or on the command line."""
    DEFAULT = 5
    LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class Kind(Generic[K]):
    """A type of values, in Kafka's syntax. Surrounding blanks are ignored."""

    name: str
    parse: Callable[[str], K]
    phrase: str


def _parse_boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(text)
    return lowered == "true"


def _make_integer_parser(bits: int) -> Callable[[str], int]:
    highest = (1 << (bits - 1)) - 1

    def parse(text: str) -> int:
        # int() alone would accept underscores and blanks, which Kafka does not.
        if re.fullmatch(r"[+-]?[0-9]+", text, re.ASCII) is None or len(text) > 20:
            raise ValueError(text)
        value = int(text)
        if not -highest - 1 <= value <= highest:
            raise ValueError(text)
        return value

    return parse


def _parse_double(text: str) -> float:
    value = float(text.rstrip("fFdD") if text[-1:] in "fFdD" else text)
    if math.isnan(value):
        raise ValueError(text)
    return value


def _parse_list(text: str) -> tuple[str, ...]:
    """As in Kafka, a value that is given twice counts once."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(","))) if text else ()


BOOLEAN: Kind[bool] = Kind("boolean", _parse_boolean, "a boolean (true or false)")
INT: Kind[int] = Kind("int", _make_integer_parser(32), "an int")
LONG: Kind[int] = Kind("long", _make_integer_parser(64), "a long")
SHORT: Kind[int] = Kind("short", _make_integer_parser(16), "a short")
DOUBLE: Kind[float] = Kind("double", _parse_double, "a double")
STRING: Kind[str] = Kind("string", str, "a string")
LIST: Kind[tuple[str, ...]] = Kind("list", _parse_list, "a list")
PASSWORD: Kind[str] = Kind("password", str, "a password")
CLASS: Kind[str] = Kind("class", str, "a class name")


def at_least(minimum: float) -> Check:
    return lambda value: f"{value} is below the minimum {minimum}" if value < minimum else None


def between(minimum: float, maximum: float, *, otherwise: float | None = None) -> Check:
    """Check for a closed range; `otherwise` is a value outside the range that is allowed too."""

    def check(value: float) -> str | None:
        if value == otherwise or minimum <= value <= maximum:
            return None
        return f"{value} is not between {minimum} and {maximum}" + ("" if otherwise is None else f" or {otherwise}")

    return check


def one_of(*choices: str) -> Check:
    return lambda value: None if value in choices else f"{value!r} is not one of {', '.join(choices)}"


def one_of_any_case(*choices: str) -> Check:
    return lambda value: None if value.lower() in choices else f"{value!r} is not one of {', '.join(choices)}"


def each_of(*choices: str) -> Check:
    def check(values: Iterable[str]) -> str | None:
        unknown = [value for value in values if value not in choices]
        return f"{unknown[0]!r} is not one of {', '.join(choices)}" if unknown else None

    return check


def check_throttled_replicas(values: tuple[str, ...]) -> str | None:
    if values in ((), ("*",)) or all(re.fullmatch(r"[0-9]+:[0-9]+", value, re.ASCII) for value in values):
        return None
    return f"{','.join(values)!r} is neither * nor a list of <partition>:<broker>"


def render(value: object) -> str | None:
    """A value as text, as Kafka's tools expect it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value).replace("e+", "E").replace("e", "E")
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


class Synonym:
    """A broker setting that is the default of a topic setting. Its unit is `factor` times that of the topic setting."""

    __slots__ = ("factor", "name")

    def __init__(self, name: str, factor: int = 1) -> None:
        self.name = name
        self.factor = factor

    def convert(self, value: Any) -> Any:
        """The value in the unit of the topic setting. -1 means "never" in every unit."""
        return value if self.factor == 1 else -1 if value < 0 else value * self.factor


class Setting(Generic[T]):
    """One setting: its name, type, default, checks and documentation."""

    __slots__ = ("attribute", "checks", "default", "doc", "kind", "mode", "name", "synonyms")

    def __init__(
        self,
        kind: Kind[T],
        default: T,
        *checks: Check,
        doc: str,
        mode: UpdateMode = UpdateMode.READ_ONLY,
        synonyms: tuple[Synonym, ...] = (),
    ) -> None:
        self.kind = kind
        self.default = default
        self.checks = checks
        self.doc = doc
        self.mode = mode
        self.synonyms = synonyms
        self.attribute = self.name = ""

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.attribute = attribute
        self.name = attribute.replace("_", ".")

    @overload
    def __get__(self, instance: None, owner: type) -> "Setting[T]": ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> "Setting[T] | T":
        # Only the class gets here: an instance has its own attribute of this name.
        return self if instance is None else self.default

    @property
    def sensitive(self) -> bool:
        return self.kind.name == "password"

    def read(self, text: str) -> T:
        try:
            value = self.kind.parse(text.strip())
        except ValueError:
            raise ConfigError(f"{self.name}: {text.strip()!r} is not {self.kind.phrase}") from None
        for check in self.checks:
            problem = check(value)
            if problem is not None:
                raise ConfigError(f"{self.name}: {problem}")
        return value


class Settings:
    """The values of one table, frozen. `given` is the text of those that were set, by Kafka's name."""

    table: ClassVar[Mapping[str, Setting[Any]]]
    given: Mapping[str, str]

    def __init_subclass__(cls) -> None:
        own = {entry.name: entry for entry in vars(cls).values() if isinstance(entry, Setting)}
        inherited = (vars(base).get("table", {}) for base in reversed(cls.__mro__[1:]))
        cls.table = {name: entry for table in (*inherited, own) for name, entry in table.items()}

    def _fill(self, values: Mapping[str, Any], given: Mapping[str, str]) -> Self:
        attributes = self.__dict__
        for name, entry in self.table.items():
            attributes[entry.attribute] = values[name]
        attributes["given"] = dict(given)
        return self

    def _copy_with(self, values: Mapping[str, Any], given: Mapping[str, str]) -> Self:
        """A copy with some values replaced."""
        copy = type(self)()
        copy.__dict__.update(self.__dict__, given=dict(given))
        copy.__dict__.update((self.table[name].attribute, value) for name, value in values.items())
        return copy

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError(f"settings are frozen: {name} cannot be set")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and dict(self.items()) == dict(other.items())

    def __hash__(self) -> int:
        return hash(tuple(self.items()))

    def value(self, name: str) -> Any:
        """The value in force, by Kafka's name."""
        return getattr(self, self.table[name].attribute)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Every setting and its value in force, by name."""
        for name in sorted(self.table):
            yield name, self.value(name)


def suggest_name(name: str, known: Iterable[str]) -> str:
    """The end of an error message: the right name if one is similar, else nothing."""
    close = find_similar(name, known, 0.7)
    return "" if close is None else f"; did you mean {close!r}?"


def find_similar(name: str, known: Iterable[str], likeness: float) -> str | None:
    """The name that is most like a wrong one, if any is as like it as `likeness`: 1 is the same."""
    from difflib import get_close_matches  # rarely needed, and importing it takes 2 ms

    return next(iter(get_close_matches(name, list(known), n=1, cutoff=likeness)), None)
