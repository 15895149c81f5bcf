"""`ottla quota set|list|delete`: how much users, client ids and addresses may take."""

import argparse

from ottla.cli.client import create_action_adder, open_own_client
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.output import add_format_argument, show_rows
from ottla.cli.pairs import parse_pairs
from ottla.cli.quotas import (
    KEYS,
    TYPES,
    Entity,
    Quota,
    alter_quotas,
    check_key,
    describe_entity,
    find_quotas,
    parse_amount,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    action = create_action_adder(parser)
    change = action("set", "set quotas of a user, a client id, both together, or an address")
    _add_entity_arguments(change)
    change.add_argument(
        "assignments",
        nargs="+",
        metavar="QUOTA=VALUE",
        help=f"{', '.join(KEYS)}; a value may end with K, M or G",
    )
    change.add_argument("--dry-run", action="store_true", help="only ask whether it could be done")
    listing = action("list", "list quotas")
    _add_entity_arguments(listing)
    add_format_argument(listing)
    delete = action("delete", "delete quotas")
    _add_entity_arguments(delete)
    delete.add_argument("keys", nargs="*", default=[], metavar="QUOTA", help="only these (default: all of the entity)")


def _add_entity_arguments(parser: argparse.ArgumentParser) -> None:
    for kind, what in (("user", "user"), ("client", "client id"), ("ip", "address")):
        group = parser.add_mutually_exclusive_group()
        metavar = "ID" if kind == "client" else "ADDRESS" if kind == "ip" else "NAME"
        group.add_argument(f"--{kind}", metavar=metavar, help=f"a {what}")
        group.add_argument(f"--{kind}-default", action="store_true", help=f"every {what} without a quota of its own")


def run(options: argparse.Namespace) -> int:
    entity = find_entity(options)
    if options.action == "list":
        with open_own_client(options) as client:
            show_rows(options.format, Quota._fields, find_quotas(client, entity))
        return 0
    if not entity:
        raise CommandError(f"quota {options.action}: name a --user, --client or --ip, or a default", USAGE_ERROR)
    if options.action == "set":
        _set(options, entity)
    else:
        _delete(options, entity)
    return 0


def find_entity(options: argparse.Namespace) -> Entity:
    entity: dict[str, str | None] = {}
    for kind in TYPES:
        if getattr(options, kind) is not None:
            entity[kind] = getattr(options, kind)
        elif getattr(options, f"{kind}_default"):
            entity[kind] = None
    if "ip" in entity and len(entity) > 1:
        raise CommandError("quota: an address has quotas alone, not together with a user or client id", USAGE_ERROR)
    return entity


def _set(options: argparse.Namespace, entity: Entity) -> None:
    values = {}
    for key, text in parse_pairs(options.assignments, "QUOTA=VALUE").items():
        check_key(key)
        values[key] = parse_amount(key, text)
    with open_own_client(options) as client:
        alter_quotas(client, entity, values, dry_run=options.dry_run)
    print(f"{describe_entity(entity)}: {', '.join(values)} {'can be set' if options.dry_run else 'set'}")


def _delete(options: argparse.Namespace, entity: Entity) -> None:
    for key in options.keys:
        check_key(key)
    with open_own_client(options) as client:
        there = [quota.quota for quota in find_quotas(client, entity, strict=True)]
        removed = options.keys or there
        missing = [key for key in removed if key not in there]
        if missing or not removed:
            raise CommandError(f"{describe_entity(entity)} has no quota {', '.join(missing)}".rstrip())
        alter_quotas(client, entity, {}, removed)
    print(f"{describe_entity(entity)}: {', '.join(removed)} deleted")
