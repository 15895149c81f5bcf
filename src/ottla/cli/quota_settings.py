"""Settings of what confluent-kafka does not know: loggers of brokers, client metrics, and quotas as settings of users,
client ids and addresses."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.quotas import (
    Entity,
    alter_quotas,
    check_key,
    describe_entity,
    find_quotas,
    format_amount,
    parse_amount,
)
from ottla.cli.resource_settings import Change, Setting
from ottla.cli.user import MECHANISMS

if TYPE_CHECKING:
    from ottla.client.client import Client

QUOTA_KINDS = ("user", "client", "ip")
RESOURCE_TYPES = {"broker": 4, "broker-logger": 8, "client-metrics": 16}
_OPERATIONS = {"SET": 0, "DELETE": 1, "APPEND": 2, "SUBTRACT": 3}
SOURCES = {1: "dynamic-topic", 2: "dynamic-broker", 3: "dynamic-default-broker", 4: "static-broker", 5: "default"}
SOURCES |= {6: "dynamic-broker-logger", 7: "client-metrics", 8: "group"}
_DEFAULT_SOURCE = 5


def describe_resource(kind: str, name: str | None) -> str:
    """`topic 'orders'`, or `default broker` if there is no name."""
    return f"{kind} {name!r}" if name else f"default {kind}"


def read_quota_settings(client: "Client", kind: str, name: str | None) -> list[Setting]:
    """Quotas of one entity alone, and the mechanisms with which a user logs in."""
    entity: Entity = {kind: name}
    found = [
        Setting(quota.quota, format_amount(quota.value), f"dynamic-{kind}", True, False, False)
        for quota in find_quotas(client, entity, strict=True)
    ]
    if kind == "user" and name is not None:
        from ottla.cli.user import find_users

        for mechanism, iterations in sorted(find_users(client, required=False).get(name, {}).items()):
            found.append(Setting(mechanism, f"iterations={iterations}", "dynamic-user", True, False, False))
    return found


def change_quota_settings(
    client: "Client", kind: str, name: str | None, changes: Sequence[Change], *, dry_run: bool
) -> None:
    values, removed = {}, []
    for change in changes:
        if change.name in MECHANISMS:
            raise CommandError(f"{change.name} is a login: `ottla user` creates, changes and deletes it", USAGE_ERROR)
        check_key(change.name)
        if change.operation == "DELETE":
            removed.append(change.name)
        elif change.operation == "SET":
            values[change.name] = parse_amount(change.name, change.value or "")
        else:
            raise CommandError(f"{change.name}: a quota is a number, not a list", USAGE_ERROR)
    entity: Entity = {kind: name}
    alter_quotas(client, entity, values, removed, dry_run=dry_run)
    names = ", ".join(change.name for change in changes)
    print(f"{describe_entity(entity)}: {names} {'can be changed' if dry_run else 'changed'}")


def is_own_kind(kind: str, name: str) -> bool:
    """Whether confluent-kafka cannot ask for it. It knows brokers, but not the defaults of all brokers."""
    return kind in RESOURCE_TYPES and (kind != "broker" or not name)


def read_resource_settings(client: "Client", kind: str, name: str) -> list[Setting]:
    from ottla.client.connection import name_error
    from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

    resource = DescribeConfigsResource(resource_type=RESOURCE_TYPES[kind], resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource])
    answer = client.ask_broker(int(name), request) if kind == "broker-logger" else client.ask_any(request)
    (result,) = answer.results
    if result.error_code:
        raise CommandError(f"{describe_resource(kind, name)}: {result.error_message or name_error(result.error_code)}")
    return [
        Setting(
            entry.name,
            entry.value,
            SOURCES.get(entry.config_source, "unknown"),
            entry.config_source != _DEFAULT_SOURCE,
            entry.read_only,
            entry.is_sensitive,
        )
        for entry in sorted(result.configs, key=lambda entry: entry.name)
    ]


def change_resource_settings(
    client: "Client", kind: str, name: str, changes: Sequence[Change], *, dry_run: bool
) -> None:
    from ottla.client.connection import name_error
    from ottla.wire.messages.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )

    entries = [
        AlterableConfig(name=change.name, config_operation=_OPERATIONS[change.operation], value=change.value)
        for change in changes
    ]
    resource = AlterConfigsResource(resource_type=RESOURCE_TYPES[kind], resource_name=name, configs=entries)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry_run)
    answer = client.ask_broker(int(name), request) if kind == "broker-logger" else client.ask_any(request)
    (result,) = answer.responses
    if result.error_code:
        raise CommandError(f"{describe_resource(kind, name)}: {result.error_message or name_error(result.error_code)}")
    names = ", ".join(change.name for change in changes)
    print(f"{describe_resource(kind, name)}: {names} {'can be changed' if dry_run else 'changed'}")
