"""Reads and changes the settings of topics, brokers, groups, loggers and client metrics in a cluster."""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.suggestions import suggest

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.client.connection import Request

KINDS = ("topic", "broker", "group", "broker-logger", "user", "client", "ip", "client-metrics")

RESOURCE_TYPES = {"topic": 2, "broker": 4, "broker-logger": 8, "client-metrics": 16, "group": 32}
SOURCES = {1: "dynamic-topic", 2: "dynamic-broker", 3: "dynamic-default-broker", 4: "static-broker", 5: "default"}
SOURCES |= {6: "dynamic-broker-logger", 7: "client-metrics", 8: "group"}

_CODES = {"SET": 0, "DELETE": 1, "APPEND": 2, "SUBTRACT": 3}
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


def describe_resource(kind: str, name: str | None) -> str:
    """`topic 'orders'`, or `default broker` if there is no name."""
    return f"{kind} {name!r}" if name else f"default {kind}"


def read_settings(client: "Client", kind: str, name: str) -> list[Setting]:
    """All settings of a resource, by name. The broker without a name stands for the defaults of all brokers."""
    from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

    resource = DescribeConfigsResource(resource_type=RESOURCE_TYPES[kind], resource_name=name, configuration_keys=None)
    (result,) = _ask(client, kind, name, DescribeConfigsRequest(resources=[resource])).results
    _raise_for_error(result, kind, name)
    found = []
    for entry in sorted(result.configs, key=lambda entry: entry.name):
        source = SOURCES.get(entry.config_source, "unknown")
        changed = source.startswith("dynamic") or source == kind  # the source of a group's own setting is `group`
        found.append(Setting(entry.name, entry.value, source, changed, entry.read_only, entry.is_sensitive))
    return found


def check_broker_settings(client: "Client", names: Iterable[str]) -> None:
    """CommandError for the first name that brokers do not know: they would keep it, without effect."""
    known = {setting.name for setting in read_settings(client, "broker", str(client.list_brokers()[0]))}
    for each in names:
        if each not in known and not each.startswith("listener.name."):
            raise CommandError(f"brokers have no setting {each!r}{suggest(each, known)}")


def change_settings(client: "Client", kind: str, name: str, changes: Sequence[Change], *, dry_run: bool) -> None:
    """Apply all changes or none, and print what was done."""
    from ottla.wire.messages.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )

    if kind in ("topic", "group") or (kind == "broker" and name):  # which list settings that are not set, too
        _check_removed(client, kind, name, [change.name for change in changes if change.operation == "DELETE"])
    entries = [
        AlterableConfig(name=change.name, config_operation=_CODES[change.operation], value=change.value)
        for change in changes
    ]
    resource = AlterConfigsResource(resource_type=RESOURCE_TYPES[kind], resource_name=name, configs=entries)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry_run)
    (result,) = _ask(client, kind, name, request).responses
    _raise_for_error(result, kind, name)
    names = ", ".join(change.name for change in changes)
    print(f"{describe_resource(kind, name)}: {names} {'can be changed' if dry_run else 'changed'}")


def _check_removed(client: "Client", kind: str, name: str, removed: Sequence[str]) -> None:
    """CommandError for the first name that is no setting of the resource: brokers take no notice of it."""
    known = {setting.name for setting in read_settings(client, kind, name)} if removed else set()
    for each in removed:
        if each not in known:
            raise CommandError(f"{kind} {name!r} has no setting {each!r}{suggest(each, known)}")


def _ask(client: "Client", kind: str, name: str, request: "Request") -> Any:
    """Ask the broker whose own settings or loggers it is about; any broker about everything else."""
    is_one_broker = kind in ("broker", "broker-logger") and name
    return client.ask_broker(int(name), request) if is_one_broker else client.ask_any(request)


def _raise_for_error(result: Any, kind: str, name: str) -> None:
    from ottla.client.connection import name_error

    if result.error_code:
        raise CommandError(f"{describe_resource(kind, name)}: {result.error_message or name_error(result.error_code)}")
