"""Reads and changes the settings of topics, brokers and groups in a cluster."""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.client import CommandClient
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.suggestions import suggest

if TYPE_CHECKING:
    from confluent_kafka.admin import ConfigEntry

KINDS = ("topic", "broker", "group", "broker-logger", "user", "client", "ip", "client-metrics")

_CHANGE = re.compile(r"([^=+\s]+?)\s*(\+=|-=|=)(.*)", re.DOTALL)
_OPERATIONS = {"=": "SET", "+=": "APPEND", "-=": "SUBTRACT"}


class Setting(NamedTuple):
    name: str
    value: str | None
    """None if the setting has no value, or if the value is secret."""
    source: str
    changed: bool
    """Whether it was set, for this resource or as a default for all."""
    read_only: bool
    sensitive: bool


class Change(NamedTuple):
    name: str
    operation: str
    value: str | None = None


def changes_of(assignments: Iterable[str], unset: Iterable[str]) -> list[Change]:
    """The changes for `KEY=VALUE`, `KEY+=VALUE`, `KEY-=VALUE` (the last two for lists) and keys to unset."""
    changes = []
    for text in assignments:
        match = _CHANGE.fullmatch(text)
        if match is None:
            raise CommandError(f"{text!r} is not KEY=VALUE", USAGE_ERROR)
        name, sign, value = match.groups()
        changes.append(Change(name, _OPERATIONS[sign], value))
    return changes + [Change(name, "DELETE") for name in unset]


def settings_of(client: CommandClient, kind: str, name: str) -> list[Setting]:
    from confluent_kafka.admin import ConfigResource, ConfigSource

    resource = ConfigResource(kind, name)
    asked = client.ask(client.admin.describe_configs, [resource])
    entries: dict[str, ConfigEntry] = client.wait_for(asked[resource], f"{kind} {name!r}")
    found = []
    for entry in sorted(entries.values(), key=lambda entry: entry.name):
        source = ConfigSource(entry.source).name.removesuffix("_CONFIG").lower().replace("_", "-")
        changed = source.startswith("dynamic") or source == kind  # the source of a group's own setting is `group`
        found.append(Setting(entry.name, entry.value, source, changed, entry.is_read_only, entry.is_sensitive))
    return found


def _check_removed(client: CommandClient, kind: str, name: str, removed: Sequence[str]) -> None:
    """CommandError for the first name that is no setting of the resource: brokers take no notice of it."""
    known = {setting.name for setting in settings_of(client, kind, name)} if removed else set()
    for each in removed:
        if each not in known:
            raise CommandError(f"{kind} {name!r} has no setting {each!r}{suggest(each, known)}")


def check_broker_settings(client: CommandClient, names: Iterable[str]) -> None:
    """CommandError for the first name that brokers do not know: they would keep it, without effect."""
    known = {setting.name for setting in settings_of(client, "broker", str(min(client.brokers)))}
    for each in names:
        if each not in known and not each.startswith("listener.name."):
            raise CommandError(f"brokers have no setting {each!r}{suggest(each, known)}")


def apply_changes(client: CommandClient, kind: str, name: str, changes: Sequence[Change], *, dry_run: bool) -> None:
    """Apply all changes or none, and print what was done."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    _check_removed(client, kind, name, [change.name for change in changes if change.operation == "DELETE"])
    entries = [
        ConfigEntry(change.name, change.value, incremental_operation=AlterConfigOpType[change.operation])
        for change in changes
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    asked = client.ask(client.admin.incremental_alter_configs, [resource], validate_only=dry_run)
    client.wait_for(asked[resource], f"{kind} {name!r}")
    names = ", ".join(change.name for change in changes)
    print(f"{kind} {name!r}: {names} {'can be changed' if dry_run else 'changed'}")
