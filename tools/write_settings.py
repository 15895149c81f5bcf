"""Writes docs/reference/settings.md from the tables of settings: name, type, default, how it changes, meaning.

python tools/write_settings.py         # writes the page; a test fails when it is out of date
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ottla.config import BrokerConfig
from ottla.config.accepted import ACCEPTED
from ottla.config.client_metrics import ClientMetricsConfig
from ottla.config.group import GroupConfig
from ottla.config.settings import Setting, render
from ottla.config.topic import TopicConfig

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "settings.md"

INTRODUCTION = """\
# Settings

Every setting of brokers, topics, groups and subscriptions to client metrics, with its type, default and meaning. Names
and defaults are those of Apache Kafka 4.3; where a default differs, the meaning says so.

```sh
ottla up --config server.properties --set num.partitions=3       # when a broker starts
ottla config set broker 1 log.cleaner.backoff.ms=1000            # while it runs
ottla config set topic orders retention.ms=86400000
ottla config get topic orders                                    # with the source of each value
```

`--set` overrides `--data`, `--port` and `--host`, and those override the file. A setting that is unknown or invalid is
an error, in one line that names it and the nearest known name. Only a file may have names that are unlike those of all
settings, as those of plug-ins are: as in Kafka they are ignored, and one line of the log lists them.

Clients are sent back to the address that they connected to, or with TLS to the host name of the listener, unless
`advertised.listeners` is set.

"Changes" says how a broker setting can be changed while the broker runs: `read-only` not at all, `per-broker` for one
broker, `cluster-wide` for one or for all. Settings of TLS and SASL can be given for one listener too, as
`listener.name.<listener>.<setting>`. Connectors have [a page of their own](../connect/settings.md).
"""

ACCEPTED_TEXT = """\
## Accepted without effect

These settings of Apache Kafka are accepted, so that a `server.properties` works as it is. Their types are checked, and
they change nothing:
"""


def build_page() -> str:
    broker = _build_table(("setting", "type", "default", "changes", "meaning"), _list_broker_rows())
    topic = _build_table(("setting", "type", "default", "default from", "meaning"), _list_rows(TopicConfig.table))
    group = _build_table(("setting", "type", "default", "default from", "meaning"), _list_rows(GroupConfig.table))
    metrics = _build_table(
        ("setting", "type", "default", "default from", "meaning"), _list_rows(ClientMetricsConfig.table)
    )
    accepted = ", ".join(f"`{name}`" for name, entry in sorted(ACCEPTED.items()) if not entry.hidden)
    hidden = ", ".join(f"`{name}`" for name, entry in sorted(ACCEPTED.items()) if entry.hidden)
    return "\n".join(
        [
            INTRODUCTION,
            "## Brokers\n",
            *broker,
            "\n## Topics\n",
            'The broker setting in the column "default from" gives the default of all topics that have no value.\n',
            *topic,
            "\n## Groups\n",
            *group,
            "\n## Subscriptions to client metrics\n",
            *metrics,
            "",
            ACCEPTED_TEXT,
            accepted + ".",
            "",
            f"Also accepted, because older files have them or because they are internal to Kafka: {hidden}.",
            "",
        ]
    )


def _build_table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for row in rows:
        yield f"| {' | '.join(_escape(cell) for cell in row)} |"


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|").replace("<", "&lt;")


def _list_broker_rows() -> Iterator[tuple[str, ...]]:
    for name, setting in sorted(BrokerConfig.table.items()):
        yield f"`{name}`", setting.kind.name, _show_default(setting), setting.mode.value, setting.doc


def _list_rows(table: Any) -> Iterator[tuple[str, ...]]:
    for name, setting in sorted(table.items()):
        if not name.startswith("internal."):
            names = ", ".join(f"`{synonym.name}`" for synonym in setting.synonyms)
            yield f"`{name}`", setting.kind.name, _show_default(setting), names, setting.doc


def _show_default(setting: Setting[Any]) -> str:
    text = render(setting.default)
    if text is None:
        return "none"
    return f"`{text}`" if text else "empty"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(build_page(), encoding="utf-8")
