"""Writes docs/connect/settings.md: the settings of every connector, as they are declared.

python tools/write_connectors.py       # writes the page; a test fails when it is out of date
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from ottla.connect.plugins.built_in import list_built_in
from ottla.connect.plugins.registry import Plugin, PluginType, Registry
from ottla.connect.settings.checks import InRange, OneOf, OneOfIgnoringCase, OptionalAtLeast
from ottla.connect.settings.connectors import SINK_SETTINGS, SOURCE_SETTINGS
from ottla.connect.settings.definition import REQUIRED, Kind, Setting
from ottla.connect.settings.parsing import write_value

PAGE = Path(__file__).resolve().parent.parent / "docs" / "connect" / "settings.md"
LINE_MAX = 200
"""A default that is longer is cut."""

INTRODUCTION = """\
# Settings of all connectors

Look up what a setting of a connector means, which values it takes and what it is by default. `ottla connect plugins
NAME` shows the same of an installed connector, also of your own, and `ottla connect validate` checks a configuration.
[Connect](../connect.md) describes what the connectors do.

In the column of types, *secret* is a password that is shown nowhere. Settings that other vendors' connectors have and
that are not listed here are refused by name where a connector knows that it cannot obey them; others have no effect,
and the worker's log names them when the connector starts.
"""


def build_page() -> str:
    connectors = Registry(list_built_in()).of_types(PluginType.SOURCE, PluginType.SINK)
    parts = [INTRODUCTION]
    for title, settings in (("Every source", SOURCE_SETTINGS), ("Every sink", SINK_SETTINGS)):
        parts.append(f"## {title}\n\n{_build_table(settings.settings)}")
    for plugin in sorted(connectors, key=_name):
        kind = "A source" if plugin.type is PluginType.SOURCE else "A sink"
        parts.append(
            f"## {_name(plugin)}\n\n{kind}: `{plugin.class_name}`.\n\n{_build_table(plugin.settings.settings)}"
        )
    return "\n".join(parts)


def _name(plugin: Plugin) -> str:
    return plugin.short_names[1]


def _build_table(settings: Iterable[Setting]) -> str:
    lines = ["| setting | type | default | |", "|---|---|---|---|"]
    for each in settings:
        lines.append(f"| `{each.name}` | {_describe_kind(each)} | {_describe_default(each)} | {_describe(each)} |")
    return "\n".join(lines) + "\n"


def _describe_kind(setting: Setting) -> str:
    return "secret" if setting.kind is Kind.PASSWORD else setting.kind.value.lower()


def _describe_default(setting: Setting) -> str:
    if setting.default is REQUIRED:
        return "**required**"
    text = write_value(setting.default)
    if not text:
        return ""
    text = text if len(text) <= LINE_MAX else f"{text[:LINE_MAX]}..."
    return f"`{_escape(text)}`"


def _describe(setting: Setting) -> str:
    return " ".join([_escape(" ".join(setting.doc.split())), *_list_limits(setting)]).strip()


def _list_limits(setting: Setting) -> Iterator[str]:
    match setting.check:
        case OneOf(values) | OneOfIgnoringCase(values):
            missing = [each for each in values if each not in setting.doc]
            if missing:
                yield f"One of {', '.join(f'`{each}`' for each in values)}."
        case InRange(least, most) if least is not None and most is not None:
            yield f"{least} to {most}."
        case InRange(least, None) | OptionalAtLeast(least) if least is not None:
            yield f"At least {least}."


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    PAGE.write_text(build_page(), encoding="utf-8")
