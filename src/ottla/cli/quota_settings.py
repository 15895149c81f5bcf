"""Quotas as settings of users, client ids and addresses, for `ottla config`."""

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
