"""`ottla acl add|list|remove`: who may do what."""

import argparse
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.client import create_action_adder, open_own_client
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.output import add_format_argument, show_rows
from ottla.cli.suggestions import suggest
from ottla.security.operations import CLUSTER_NAME, WILDCARD, Operation, PatternType, Permission, ResourceType

if TYPE_CHECKING:
    from ottla.client.client import Client

RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user_resource": ResourceType.USER,
}
"""Options that name a resource."""
ALL_HOSTS = WILDCARD


class Acl(NamedTuple):
    principal: str
    permission: str
    operation: str
    resource: str
    pattern: str
    name: str
    host: str


class Pattern(NamedTuple):
    """What ACLs are about: resources of a type, by name."""

    resource: ResourceType
    name: str
    pattern: PatternType


def add_arguments(parser: argparse.ArgumentParser) -> None:
    action = create_action_adder(parser)
    add = action("add", "let users do something, or forbid it")
    add.add_argument("principals", nargs="+", metavar="USER", help="alice, User:alice, or * for everybody")
    _add_resource_arguments(add)
    add.add_argument(
        "-o", "--operation", action="append", default=[], metavar="NAME", help="read, write, ...; may be repeated"
    )
    add.add_argument("--producer", action="store_true", help="what a producer to these topics needs")
    add.add_argument("--consumer", action="store_true", help="what a consumer of these topics in these groups needs")
    add.add_argument("--idempotent", action="store_true", help="with --producer: idempotence on brokers before 3.0")
    add.add_argument("--deny", action="store_true", help="forbid it, whatever else allows it")
    add.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="only from this address; may be repeated (default: from everywhere)",
    )
    add_format_argument(add)
    listing = action("list", "list ACLs")
    _add_filter_arguments(listing)
    add_format_argument(listing)
    remove = action("remove", "remove ACLs")
    _add_filter_arguments(remove)
    remove.add_argument("--all", action="store_true", help="remove every ACL, if nothing else says which")
    remove.add_argument("--dry-run", action="store_true", help="only show what would be removed")
    add_format_argument(remove)


def _add_resource_arguments(parser: argparse.ArgumentParser) -> None:
    for option, metavar, purpose in (
        ("--topic", "TOPIC", "a topic, or * for all"),
        ("--group", "GROUP", "a group, or * for all"),
        ("--transactional-id", "ID", "a transactional id, or * for all"),
        ("--delegation-token", "ID", "a delegation token, or * for all"),
        ("--user-resource", "USER", "a user whose delegation tokens are meant"),
    ):
        parser.add_argument(option, action="append", default=[], metavar=metavar, help=f"{purpose}; may be repeated")
    parser.add_argument("--cluster", action="store_true", help="the cluster itself")
    parser.add_argument("--prefixed", action="store_true", help="the names are those with which others begin")


def _add_filter_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("principals", nargs="*", default=[], metavar="USER", help="only ACLs of these users")
    _add_resource_arguments(parser)
    parser.add_argument(
        "--matching", action="store_true", help="all ACLs that apply to these names, also those for prefixes and *"
    )
    parser.add_argument("-o", "--operation", action="append", default=[], metavar="NAME", help="only these operations")
    parser.add_argument("--host", action="append", default=[], metavar="ADDRESS", help="only those of this address")


def run(options: argparse.Namespace) -> int:
    if options.action == "add":
        _add(options)
    elif options.action == "list":
        _list(options)
    else:
        _remove(options)
    return 0


def _add(options: argparse.Namespace) -> None:
    wanted = plan(options)
    with open_own_client(options) as client:
        create(client, wanted)
    _show(options, wanted)


def plan(options: argparse.Namespace) -> list[Acl]:
    """The ACLs that `add` creates. CommandError if the options name none."""
    permission = Permission.DENY if options.deny else Permission.ALLOW
    found: dict[Acl, None] = {}
    for pattern, operation in _find_operations(options):
        for principal in options.principals:
            for host in options.host or [ALL_HOSTS]:
                found[make_acl(pattern, name_principal(principal), host, operation, permission)] = None
    return list(found)


def _find_operations(options: argparse.Namespace) -> list[tuple[Pattern, Operation]]:
    patterns = _find_patterns(options)
    shortcuts = options.producer or options.consumer
    if shortcuts and (options.operation or options.deny):
        raise CommandError("acl add: --producer and --consumer stand for operations that are allowed", USAGE_ERROR)
    if not shortcuts:
        if not patterns or not options.operation:
            raise CommandError(
                "acl add: say what is allowed: --topic NAME --operation read, or --producer or --consumer", USAGE_ERROR
            )
        return [(pattern, parse_operation(name)) for pattern in patterns for name in options.operation]
    topics = [each for each in patterns if each.resource == ResourceType.TOPIC]
    groups = [each for each in patterns if each.resource == ResourceType.GROUP]
    if not topics:
        raise CommandError("acl add: --producer and --consumer need --topic", USAGE_ERROR)
    found = []
    if options.producer:
        writing = (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
        found += [(pattern, operation) for pattern in topics for operation in writing]
        for pattern in patterns:
            if pattern.resource == ResourceType.TRANSACTIONAL_ID:
                found += [(pattern, Operation.WRITE), (pattern, Operation.DESCRIBE)]
        if options.idempotent:
            cluster = Pattern(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)
            found.append((cluster, Operation.IDEMPOTENT_WRITE))
    if options.consumer:
        if not groups:
            raise CommandError("acl add: --consumer needs --group", USAGE_ERROR)
        found += [(pattern, operation) for pattern in topics for operation in (Operation.READ, Operation.DESCRIBE)]
        found += [(pattern, Operation.READ) for pattern in groups]
    return found


def _find_patterns(options: argparse.Namespace) -> list[Pattern]:
    kind = PatternType.PREFIXED if options.prefixed else PatternType.LITERAL
    if getattr(options, "matching", False):
        kind = PatternType.MATCH
    found = [Pattern(type, name, kind) for option, type in RESOURCES.items() for name in getattr(options, option)]
    if any(not pattern.name for pattern in found):
        raise CommandError("acl: the name of a resource is empty", USAGE_ERROR)
    if options.cluster:
        found.append(Pattern(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL))
    return found


def parse_operation(name: str) -> Operation:
    """`describe-configs`, `DescribeConfigs` or `DESCRIBE_CONFIGS`."""
    known = {each.name.replace("_", ""): each for each in Operation if each != Operation.ANY}
    found = known.get(name.upper().replace("-", "").replace("_", ""))
    if found is None:
        names = [_word(each.name) for each in known.values()]
        hint = suggest(name, names) or f"; there are {', '.join(names)}"
        raise CommandError(f"--operation: there is no operation {name!r}{hint}", USAGE_ERROR)
    return found


def name_principal(text: str) -> str:
    """`alice` is `User:alice`, as Kafka writes principals."""
    return text if ":" in text else f"User:{text}"


def make_acl(pattern: Pattern, principal: str, host: str, operation: Operation, permission: Permission) -> Acl:
    """An ACL in the words of the command line."""
    words = map(_word, (permission.name, operation.name, pattern.resource.name, pattern.pattern.name))
    shown_permission, shown_operation, resource, shown_pattern = words
    return Acl(principal, shown_permission, shown_operation, resource, shown_pattern, pattern.name, host)


def _word(name: str) -> str:
    return name.lower().replace("_", "-")


def _number(kind: "type[Operation | PatternType | Permission | ResourceType]", word: str) -> int:
    return int(kind[word.upper().replace("-", "_")])


def create(client: "Client", wanted: list[Acl]) -> None:
    """KafkaError if one of them is refused."""
    from ottla.client.connection import name_error
    from ottla.wire.messages.create_acls import AclCreation, CreateAclsRequest

    asked = [
        AclCreation(
            resource_type=_number(ResourceType, acl.resource),
            resource_name=acl.name,
            resource_pattern_type=_number(PatternType, acl.pattern),
            principal=acl.principal,
            host=acl.host,
            operation=_number(Operation, acl.operation),
            permission_type=_number(Permission, acl.permission),
        )
        for acl in wanted
    ]
    answer = client.ask_any(CreateAclsRequest(creations=asked))
    for acl, result in zip(wanted, answer.results, strict=False):
        if result.error_code:
            name = name_error(result.error_code)
            raise CommandError(
                f"{acl.principal} on {acl.resource} {acl.name!r}: {result.error_message or name} ({name})"
            )


def _list(options: argparse.Namespace) -> None:
    with open_own_client(options) as client:
        found = find(client, options)
    _show(options, found)


def _remove(options: argparse.Namespace) -> None:
    is_open = not (options.principals or _find_patterns(options) or options.operation or options.host)
    if is_open and not options.all:
        raise CommandError("acl remove: say which: USER, --topic NAME, --operation read, ..., or --all", USAGE_ERROR)
    with open_own_client(options) as client:
        found = find(client, options)
        if not options.dry_run:
            delete(client, found)
    _show(options, found)


def find(client: "Client", options: argparse.Namespace) -> list[Acl]:
    """The ACLs that the options of `list` and `remove` choose."""
    from ottla.client.connection import name_error
    from ottla.wire.messages.describe_acls import DescribeAclsRequest

    principals = {name_principal(each) for each in options.principals}
    operations = {parse_operation(each) for each in options.operation}
    found: dict[Acl, None] = {}
    everything = Pattern(ResourceType.ANY, "", PatternType.ANY)
    for pattern in _find_patterns(options) or [everything]:
        asked = DescribeAclsRequest(
            resource_type_filter=int(pattern.resource),
            resource_name_filter=pattern.name or None,
            pattern_type_filter=int(pattern.pattern),
            operation=int(Operation.ANY),
            permission_type=int(Permission.ANY),
        )
        answer = client.ask_any(asked)
        if answer.error_code:
            name = name_error(answer.error_code)
            raise CommandError(f"cannot list ACLs: {answer.error_message or name} ({name})")
        for resource in answer.resources:
            where = Pattern(
                ResourceType(resource.resource_type), resource.resource_name, PatternType(resource.pattern_type)
            )
            for acl in resource.acls:
                operation = Operation(acl.operation)
                if (principals and acl.principal not in principals) or (operations and operation not in operations):
                    continue
                if not options.host or acl.host in options.host:
                    found[make_acl(where, acl.principal, acl.host, operation, Permission(acl.permission_type))] = None
    return sorted(found)


def delete(client: "Client", chosen: list[Acl]) -> None:
    """Exactly these ACLs, whatever was added meanwhile."""
    from ottla.client.connection import name_error
    from ottla.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest

    filters = [
        DeleteAclsFilter(
            resource_type_filter=_number(ResourceType, acl.resource),
            resource_name_filter=acl.name,
            pattern_type_filter=_number(PatternType, acl.pattern),
            principal_filter=acl.principal,
            host_filter=acl.host,
            operation=_number(Operation, acl.operation),
            permission_type=_number(Permission, acl.permission),
        )
        for acl in chosen
    ]
    if not filters:
        return
    answer = client.ask_any(DeleteAclsRequest(filters=filters))
    for result in answer.filter_results:
        if result.error_code:
            name = name_error(result.error_code)
            raise CommandError(f"cannot remove ACLs: {result.error_message or name} ({name})")


def _show(options: argparse.Namespace, found: list[Acl]) -> None:
    show_rows(options.format, Acl._fields, found)
