"""Checks a JSON document against a JSON Schema, for the keywords that describe data:

type, enum, const, properties, required, additionalProperties, patternProperties, minProperties, maxProperties, items,
prefixItems, minItems, maxItems, uniqueItems, minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf,
minLength, maxLength, pattern, allOf, anyOf, oneOf, not, and $ref within the schema.

Other keywords (format, if, unevaluatedProperties, references to other schemas) are not checked, as JSON Schema allows.
"""

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

DEPTH_MAX = 100

_NUMBERS = (int, float, Decimal)
_SHOWN_MAX = 60


def check_document(document: Any, schema: Any) -> None:
    """ValueError, with the path and the reason, if the document does not fit the schema."""
    for reason in _find_faults(document, schema, "value", schema, 0):
        raise ValueError(reason)


def _find_faults(value: Any, schema: Any, path: str, root: Any, depth: int) -> Iterator[str]:
    if schema is True or (isinstance(schema, dict) and not schema):
        return
    if schema is False:
        yield f"{path} is not allowed by the schema"
        return
    if not isinstance(schema, dict) or depth > DEPTH_MAX:
        return
    if isinstance(schema.get("$ref"), str) and schema["$ref"].startswith("#"):
        yield from _find_faults(value, _resolve(root, schema["$ref"]), path, root, depth + 1)
    if "type" in schema:
        wanted = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(_TYPES.get(kind, lambda _: True)(value) for kind in wanted):
            yield f"{path}: {value!r:.{_SHOWN_MAX}} is not of type {' or '.join(map(str, wanted))}"
            return
    if "enum" in schema and not any(_is_same(value, each) for each in schema["enum"]):
        yield f"{path}: {value!r:.{_SHOWN_MAX}} is none of {', '.join(map(repr, schema['enum']))}"
    if "const" in schema and not _is_same(value, schema["const"]):
        yield f"{path}: {value!r:.{_SHOWN_MAX}} is not {schema['const']!r}"
    yield from _check_choices(value, schema, path, root, depth)
    if isinstance(value, dict):
        yield from _check_object(value, schema, path, root, depth)
    elif isinstance(value, list):
        yield from _check_array(value, schema, path, root, depth)
    elif isinstance(value, str):
        yield from _check_limits(len(value), schema, path, "Length", "characters")
        if "pattern" in schema and re.search(schema["pattern"], value) is None:
            yield f"{path}: {value!r:.{_SHOWN_MAX}} does not match {schema['pattern']}"
    elif _is_number(value):
        yield from _check_number(value, schema, path)


def _check_choices(value: Any, schema: dict[str, Any], path: str, root: Any, depth: int) -> Iterator[str]:
    for each in schema.get("allOf", ()):
        yield from _find_faults(value, each, path, root, depth + 1)
    for keyword in ("anyOf", "oneOf"):
        if keyword not in schema:
            continue
        faults = [next(_find_faults(value, each, path, root, depth + 1), None) for each in schema[keyword]]
        fitting = faults.count(None)
        if not fitting:
            yield next((fault for fault in faults if fault), f"{path} fits no schema of {keyword}")
        elif fitting > 1 and keyword == "oneOf":
            yield f"{path} fits {fitting} schemas of oneOf, not one"
    if "not" in schema and next(_find_faults(value, schema["not"], path, root, depth + 1), None) is None:
        yield f"{path} fits a schema that it must not fit"


def _check_object(value: dict[str, Any], schema: dict[str, Any], path: str, root: Any, depth: int) -> Iterator[str]:
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}.{name} is missing, and the schema requires it"
    properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, each in value.items():
        if name in properties:
            yield from _find_faults(each, properties[name], f"{path}.{name}", root, depth + 1)
        matching = [inner for pattern, inner in patterns.items() if re.search(pattern, name)]
        for inner in matching:
            yield from _find_faults(each, inner, f"{path}.{name}", root, depth + 1)
        if name not in properties and not matching and "additionalProperties" in schema:
            yield from _find_faults(each, schema["additionalProperties"], f"{path}.{name}", root, depth + 1)
    yield from _check_limits(len(value), schema, path, "Properties", "properties")


def _check_array(value: list[Any], schema: dict[str, Any], path: str, root: Any, depth: int) -> Iterator[str]:
    items, first = schema.get("items", True), schema.get("prefixItems", [])
    if isinstance(items, list):  # before draft 2020-12
        first, items = items, schema.get("additionalItems", True)
    for number, each in enumerate(value):
        inner = first[number] if number < len(first) else items
        yield from _find_faults(each, inner, f"{path}[{number}]", root, depth + 1)
    yield from _check_limits(len(value), schema, path, "Items", "items")
    if schema.get("uniqueItems") and any(_is_same(a, b) for at, a in enumerate(value) for b in value[:at]):
        yield f"{path} has an item twice"


def _check_number(value: Any, schema: dict[str, Any], path: str) -> Iterator[str]:
    for keyword, fits, what in _LIMITS:
        if _is_number(schema.get(keyword)) and not fits(value, schema[keyword]):
            yield f"{path}: {value} is not {what} {schema[keyword]}"
    step = schema.get("multipleOf")
    if _is_number(step) and Decimal(str(value)) % Decimal(str(step)):
        yield f"{path}: {value} is not a multiple of {step}"


def _check_limits(size: int, schema: dict[str, Any], path: str, what: str, noun: str) -> Iterator[str]:
    if size < schema.get(f"min{what}", 0):
        yield f"{path} has {size} {noun}, fewer than {schema[f'min{what}']}"
    if size > schema.get(f"max{what}", size):
        yield f"{path} has {size} {noun}, more than {schema[f'max{what}']}"


def _resolve(root: Any, reference: str) -> Any:
    """The schema at a JSON pointer such as #/definitions/address. Everything fits one that is not there."""
    found = root
    for part in filter(None, reference.lstrip("#").split("/")):
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or name not in found:
            return True
        found = found[name]
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, _NUMBERS) and not isinstance(value, bool)


def _is_same(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


_TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and value == int(value),
    "number": _is_number,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
_LIMITS: tuple[tuple[str, Callable[[Any, Any], bool], str], ...] = (
    ("minimum", lambda value, limit: value >= limit, "at least"),
    ("maximum", lambda value, limit: value <= limit, "at most"),
    ("exclusiveMinimum", lambda value, limit: value > limit, "more than"),
    ("exclusiveMaximum", lambda value, limit: value < limit, "less than"),
)
