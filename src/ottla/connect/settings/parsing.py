"""Text to the values of settings, by Kafka's rules: blanks around a value do not count, true and false have no case.

Errors are ValueErrors with Kafka's sentences, which administrators and programs know. The value of a password is never
part of one.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from ottla.connect.errors import BadConfig
from ottla.connect.settings.checks import WholeSentence, refuse_unsupported
from ottla.connect.settings.definition import REQUIRED, Kind, Password, Setting, Settings

_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?|[+-]?(NaN|Infinity)", re.ASCII)
_BITS: Final = {Kind.SHORT: 16, Kind.INT: 32, Kind.LONG: 64}
_COMMA: Final = re.compile(r"\s*,\s*")


def parse_value(setting: Setting, text: str) -> Any:
    """The value of a setting from its text. ValueError with a whole sentence if the text is not of the kind.

    A list is a list of strings and a class is its name.
    """
    trimmed = text.strip()
    match setting.kind:
        case Kind.BOOLEAN:
            if trimmed.lower() not in ("true", "false"):
                raise ValueError(describe_error(setting, text, "Expected value to be either true or false"))
            return trimmed.lower() == "true"
        case Kind.SHORT | Kind.INT | Kind.LONG:
            limit = 1 << (_BITS[setting.kind] - 1)
            if not _INTEGER.fullmatch(trimmed) or len(trimmed) > 40 or not -limit <= int(trimmed) < limit:
                raise ValueError(describe_error(setting, text, f"Not a number of type {setting.kind.value}"))
            return int(trimmed)
        case Kind.DOUBLE:
            if not _DECIMAL.fullmatch(trimmed):
                raise ValueError(describe_error(setting, text, f"Not a number of type {setting.kind.value}"))
            return float(trimmed.rstrip("dDfF") if trimmed[-1:] in "dDfF" else trimmed)
        case Kind.LIST:
            return _COMMA.split(trimmed) if trimmed else []
        case Kind.PASSWORD:
            return Password(trimmed)
        case Kind.STRING | Kind.CLASS:
            return trimmed


def parse(settings: Settings, given: Mapping[str, str]) -> dict[str, Any]:
    """The value of each declared setting, and the others as they were given. BadConfig has all errors, one a line."""
    values: dict[str, Any] = {name: text for name, text in given.items() if text is not None}
    errors: list[str] = []
    for setting in settings.settings:
        value, wrong = read_setting(setting, given)
        values[setting.name] = value
        errors += wrong
    if settings.refuse is not None and not errors:
        for name, reasons in settings.refuse(values).items():
            errors += [f"{name}: {reason}" for reason in reasons]
    errors += refuse_unsupported(settings, given).values()
    if errors:
        raise BadConfig("\n".join(errors))
    return values


def read_setting(setting: Setting, given: Mapping[str, str | None]) -> tuple[Any, list[str]]:
    """The value of one setting and what is wrong with it. A wrong text has the value None, as in Kafka."""
    value: Any = None
    errors: list[str] = []
    text = given.get(setting.name)
    if text is not None:
        try:
            value = parse_value(setting, text)
        except ValueError as error:
            errors.append(str(error))
    elif setting.name not in given:
        if setting.default is REQUIRED:
            errors.append(f'Missing required configuration "{setting.name}" which has no default value.')
        else:
            value = setting.default
    if setting.check is not None and (value is not None or getattr(setting.check, "refuses_null", False)):
        try:
            setting.check(setting.name, value)
        except WholeSentence as error:
            errors.append(str(error))
        except ValueError as error:
            errors.append(describe_error(setting, value, str(error)))
    return value, errors


def describe_error(setting: Setting, value: Any, reason: str) -> str:
    """Kafka's sentence for a wrong value."""
    shown = "[hidden]" if setting.kind is Kind.PASSWORD and value is not None else show_value(value)
    return f"Invalid value {shown} for configuration {setting.name}: {reason}"


def show_value(value: Any) -> str:
    """A value as Java's `toString` writes it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return f"[{', '.join(map(show_value, value))}]"
        case Password():
            return "[hidden]"
        case _:
            return str(value)


def write_value(value: Any) -> str | None:
    """A value as the text that would be parsed to it, as Kafka Connect answers with; a password is hidden."""
    match value:
        case None:
            return None
        case list() | tuple():
            return ",".join(map(show_value, value))
        case _:
            return show_value(value)
