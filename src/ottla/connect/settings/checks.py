"""Checks of values that many settings share, with Kafka's words for what is wrong."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ottla.connect.settings.definition import Settings


class WholeSentence(ValueError):
    """What is wrong, in a sentence that names the setting itself."""


@dataclass(frozen=True)
class InRange:
    """A number with bounds. Kafka reports a text that is not a number a second time here, as a value that is null."""

    least: float | None = None
    most: float | None = None
    refuses_null: ClassVar[bool] = True

    def __call__(self, name: str, value: Any) -> None:
        if value is None:
            raise ValueError("Value must be non-null")
        if self.least is not None and value < self.least:
            raise ValueError(f"Value must be at least {self.least}")
        if self.most is not None and value > self.most:
            raise ValueError(f"Value must be no more than {self.most}")


def at_least(least: float) -> InRange:
    return InRange(least=least)


def between(least: float, most: float) -> InRange:
    return InRange(least, most)


@dataclass(frozen=True)
class OptionalAtLeast:
    """A number with a lower bound, where no number at all is right too."""

    least: float

    def __call__(self, name: str, value: Any) -> None:
        if value < self.least:
            raise ValueError(f"Value must be at least {self.least}")


@dataclass(frozen=True)
class OneOf:
    values: tuple[str, ...]

    def __call__(self, name: str, value: Any) -> None:
        if value not in self.values:
            raise ValueError(f"String must be one of: {', '.join(self.values)}")


def one_of(*values: str) -> OneOf:
    return OneOf(values)


@dataclass(frozen=True)
class OneOfIgnoringCase:
    values: tuple[str, ...]

    def __call__(self, name: str, value: Any) -> None:
        if value.upper() not in (each.upper() for each in self.values):
            raise ValueError(f"String must be one of (case insensitive): {', '.join(self.values)}")


def one_of_ignoring_case(*values: str) -> OneOfIgnoringCase:
    return OneOfIgnoringCase(values)


def non_empty(name: str, value: Any) -> None:
    if not value:
        raise ValueError("String must be non-empty")


def non_empty_without_control_characters(name: str, value: Any) -> None:
    if not value:
        raise ValueError("String may not be empty")
    found = [character for character in value if ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0]
    if found:
        codes = ", ".join(str(ord(character)) for character in found)
        raise ValueError(f"String may not contain control sequences but had the following ASCII chars: {codes}")


@dataclass(frozen=True)
class UniqueAliases:
    """A list that names each alias once."""

    refuses_null: ClassVar[bool] = True

    def __call__(self, name: str, value: Any) -> None:
        if value is None:
            raise ValueError("entry must be non null")
        if len(set(value)) < len(value):
            raise ValueError("Duplicate alias provided.")


def unique_and_not_empty(name: str, value: Any) -> None:
    if len(set(value)) < len(value):
        raise WholeSentence(f"Configuration '{name}' values must not be duplicated.")
    if not all(value):
        raise WholeSentence(f"Configuration '{name}' values must not be empty.")


def is_regex(name: str, value: Any) -> None:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"Invalid regex: {error}") from None


def are_regexes(name: str, value: Sequence[str]) -> None:
    for each in value:
        try:
            re.compile(each)
        except re.error as error:
            raise ValueError(f"Syntax error in regular expression: {error}") from None


def positive_or_default(name: str, value: Any) -> None:
    """How many partitions or replicas a topic gets; -1 leaves it to the broker."""
    if value != -1 and value < 1:
        raise ValueError("Value must be positive, or -1 to use the broker's default")


def refuse_unsupported(settings: Settings, given: Mapping[str, str | None]) -> dict[str, str]:
    """The error of each setting that others have for a connector of this name, and that cannot be obeyed here."""
    found = {}
    for name, text in given.items():
        if not text or not text.strip():
            continue
        right = settings.harmless.get(name)
        is_harmless = right is not None and text.strip().lower() in {each.lower() for each in right}
        if not is_harmless and (right is not None or name.startswith(settings.refused_prefixes)):
            reason = settings.reasons.get(name)
            found[name] = f"{name}={text} is not supported" + (f"; {reason}" if reason else "")
    return found
