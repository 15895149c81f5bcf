"""The way to a field: a name, or with `field.syntax.version=V2` names of nested fields with dots between them."""

from collections.abc import Mapping
from typing import Any, Final

from ottla.connect.data.schema import Field, Schema, Type, read_field
from ottla.connect.errors import BadConfig, RecordError
from ottla.connect.settings.checks import one_of_ignoring_case
from ottla.connect.settings.definition import Importance, Kind, Setting
from ottla.connect.transforms.transformation import require_map

SYNTAX_VERSION: Final = "field.syntax.version"
SYNTAX_VERSION_SETTING: Final = Setting(
    SYNTAX_VERSION,
    Kind.STRING,
    "V1",
    "Defines the version of the syntax to access fields. If set to `V1`, then the field paths are limited to access "
    "the elements at the root level of the struct or map. If set to `V2`, the syntax will support accessing nested "
    "elements. To access nested elements, dotted notation is used. If dots are already included in the field name, "
    "then backtick pairs can be used to wrap field names containing dots. E.g. to access the subfield `baz` from a "
    'field named "foo.bar" in a struct/map the following format can be used to access its elements: "`foo.bar`.baz".',
    Importance.HIGH,
    check=one_of_ignoring_case("V1", "V2"),
)
_PURPOSE: Final = "nested field access"


class FieldPath:
    def __init__(self, text: str, version: str) -> None:
        self.text = text
        self._steps = _split(text) if version.upper() == "V2" else [text]

    def find_field(self, schema: Schema) -> Field | None:
        """The field of a STRUCT's schema; None if there is none."""
        *parents, last = self._steps
        for step in parents:
            field = _look_up(schema, step)
            if field is None:
                return None
            schema = field.schema
        return _look_up(schema, last)

    def read_struct(self, schema: Schema, struct: Mapping[str, Any], *, with_default: bool) -> Any:
        *parents, last = self._steps
        for step in parents:
            field = _look_up(schema, step)
            if field is None:
                return None
            value = read_field(schema, struct, step)
            if value is None:
                return None
            if field.schema.type is not Type.STRUCT:
                raise RecordError(f"Only Struct objects supported for [{_PURPOSE}], found: {field.schema.type.name}")
            schema, struct = field.schema, value
        return read_field(schema, struct, last, with_default=with_default) if _look_up(schema, last) else None

    def read_map(self, value: Mapping[str, Any]) -> Any:
        *parents, last = self._steps
        for step in parents:
            found = value.get(step)
            if found is None:
                return None
            value = require_map(found, _PURPOSE)
        return value.get(last)


def _look_up(schema: Schema, name: str) -> Field | None:
    if schema.type is not Type.STRUCT:
        raise RecordError("Cannot look up fields on non-struct type")
    return schema.find_field(name)


def _split(path: str) -> list[str]:
    """Steps between dots. A step in backticks may have dots; within it, a backtick before a dot has a backslash."""
    steps = []
    at = 0
    while at < len(path):
        if path[at] == "`":
            step, at = _take_quoted(path, at)
        else:
            dot = path.find(".", at)
            step, at = (path[at:], len(path)) if dot < 0 else (path[at:dot], dot + 1)
        steps.append(step)
    return [*steps, ""] if path.endswith(".") else steps or [""]


def _take_quoted(path: str, opening: int) -> tuple[str, int]:
    """The step in the backticks that begin here, and the place of the next step."""
    step, start, at = "", opening + 1, opening + 1
    while True:
        at = path.find("`", at)
        is_last = at == len(path) - 1
        escaped = at > 0 and path[at - 1] == "\\"
        if at < 0 or (is_last and escaped):
            raise BadConfig(
                f"Incomplete backtick pair in path: [{path}], consider adding a backslash before backtick at position "
                f"{opening} to escape it"
            )
        if is_last:
            return step + path[start:at], len(path)
        if path[at + 1] == "." and not escaped:
            return step + path[start:at], at + 2
        if path[at + 1] == ".":
            step, start = step + path[start : at - 1] + "`", at + 1
        at += 1
