"""`ottla kafka acls`: kafka-acls."""

import argparse
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.cli.acl import Acl, Pattern, create, delete, make_acl, parse_operation
from ottla.cli.client import require_text
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.kafka.flags import add_client_flags, add_switches, choose_action, explain_code, open_client
from ottla.security.operations import CLUSTER_NAME, WILDCARD, Operation, PatternType, Permission, ResourceType

if TYPE_CHECKING:
    from ottla.client.client import Client

ACTIONS = ("add", "remove", "list")
NAMED = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user_principal": ResourceType.USER,
}
PATTERNS = {each.name.lower(): each for each in (PatternType.LITERAL, PatternType.PREFIXED, PatternType.ANY)}
PATTERNS["match"] = PatternType.MATCH
SHORTCUTS: dict[ResourceType, dict[str, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: {
        "producer": (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
        "consumer": (Operation.READ, Operation.DESCRIBE),
    },
    ResourceType.GROUP: {"consumer": (Operation.READ,)},
    ResourceType.TRANSACTIONAL_ID: {"producer": (Operation.WRITE, Operation.DESCRIBE)},
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_client_flags(parser)
    add_switches(parser, [(f"--{name}", f"{name} ACLs") for name in ACTIONS])
    for name in NAMED:
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, action="append", default=[], metavar="NAME", help="* for all; may be repeated")
    parser.add_argument("--resource-pattern-type", type=str.lower, choices=tuple(PATTERNS), default="literal")
    for flag in ("--allow-principal", "--deny-principal", "--principal"):
        parser.add_argument(flag, action="append", default=[], metavar="User:NAME", help="may be repeated")
    for flag in ("--allow-host", "--deny-host"):
        parser.add_argument(flag, action="append", default=[], metavar="ADDRESS", help="(default: every address)")
    parser.add_argument("--operation", action="append", default=[], metavar="NAME", help="(default: all)")
    add_switches(
        parser,
        [
            ("--cluster", "the cluster itself"),
            ("--producer", "what a producer needs"),
            ("--consumer", "what a consumer needs"),
            ("--idempotent", "what an idempotent producer needed before Kafka 3.0"),
            ("--force", "ask nothing"),
        ],
    )


def run(options: argparse.Namespace) -> None:
    action = choose_action(options, ACTIONS)
    principals = [*options.allow_principal, *options.deny_principal, *options.principal]
    require_text(*principals, *options.allow_host, *options.deny_host)
    for principal in principals:
        if ":" not in principal:
            raise CommandError(f"{principal!r} is not a principal such as User:alice", USAGE_ERROR)
    patterns = _find_patterns(options)
    if action != "list" and not patterns:
        raise CommandError(f"--{action}: name a resource, such as --topic NAME or --cluster", USAGE_ERROR)
    if action == "add":
        wanted = _plan(options, patterns)
        with open_client(options) as client:
            _show(wanted, "Adding ACLs for resource", ": \n")
            create(client, wanted)
        return
    with open_client(options) as client:
        if action == "list":
            _list(client, options, patterns)
        else:
            _remove(client, options, patterns)


def _find_patterns(options: argparse.Namespace) -> list[Pattern]:
    kind = PATTERNS[options.resource_pattern_type]
    if options.add and kind not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise CommandError("--add: --resource-pattern-type is literal or prefixed", USAGE_ERROR)
    found = [Pattern(type, name.strip(), kind) for option, type in NAMED.items() for name in getattr(options, option)]
    require_text(*(pattern.name for pattern in found))
    if any(not pattern.name for pattern in found):
        raise CommandError("the name of a resource is empty", USAGE_ERROR)
    if options.cluster or (options.idempotent and options.producer):
        found.append(Pattern(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL))
    return found


def _plan(options: argparse.Namespace, patterns: Iterable[Pattern]) -> list[Acl]:
    """The ACLs that the flags describe. CommandError if they describe none."""
    is_short = options.producer or options.consumer
    if is_short and (options.operation or options.deny_principal or options.deny_host):
        raise CommandError("--producer and --consumer stand for operations that are allowed", USAGE_ERROR)
    whom = [
        *(
            (name, host, Permission.ALLOW)
            for name in options.allow_principal
            for host in options.allow_host or [WILDCARD]
        ),
        *((name, host, Permission.DENY) for name in options.deny_principal for host in options.deny_host or [WILDCARD]),
    ]
    if not whom:
        raise CommandError("give --allow-principal or --deny-principal", USAGE_ERROR)
    found: dict[Acl, None] = {}
    for pattern in patterns:
        for operation in _choose_operations(options, pattern) if is_short else _list_operations(options):
            for principal, host, permission in whom:
                found[make_acl(pattern, principal, host, operation, permission)] = None
    if not found:
        raise CommandError("--producer needs --topic, and --consumer needs --topic and --group", USAGE_ERROR)
    return list(found)


def _list_operations(options: argparse.Namespace) -> list[Operation]:
    return [parse_operation(name) for name in options.operation] or [Operation.ALL]


def _choose_operations(options: argparse.Namespace, pattern: Pattern) -> list[Operation]:
    if pattern.resource == ResourceType.CLUSTER:
        return [Operation.IDEMPOTENT_WRITE] if options.idempotent else []
    known = SHORTCUTS.get(pattern.resource, {})
    chosen = [name for name in ("producer", "consumer") if getattr(options, name)]
    return [operation for name in chosen for operation in known.get(name, ())]


def find(client: "Client", patterns: Iterable[Pattern], principal: str | None = None) -> list[Acl]:
    from ottla.wire.messages.describe_acls import DescribeAclsRequest

    found: dict[Acl, None] = {}
    for pattern in patterns:
        asked = DescribeAclsRequest(
            resource_type_filter=int(pattern.resource),
            resource_name_filter=pattern.name or None,
            pattern_type_filter=int(pattern.pattern),
            principal_filter=principal,
            operation=int(Operation.ANY),
            permission_type=int(Permission.ANY),
        )
        answer = client.ask_any(asked)
        if answer.error_code:
            raise CommandError(f"cannot list ACLs: {explain_code(answer.error_code, answer.error_message)}")
        for each in answer.resources:
            where = Pattern(ResourceType(each.resource_type), each.resource_name, PatternType(each.pattern_type))
            for acl in each.acls:
                rule = Operation(acl.operation), Permission(acl.permission_type)
                found[make_acl(where, acl.principal, acl.host, *rule)] = None
    return list(found)


def _list(client: "Client", options: argparse.Namespace, patterns: list[Pattern]) -> None:
    chosen = patterns or [Pattern(ResourceType.ANY, "", PatternType.ANY)]
    for principal in dict.fromkeys(options.principal):
        print(f"ACLs for principal `{principal}`")
        _show(find(client, chosen, principal), "Current ACLs for resource", ":\n")
    if not options.principal:
        _show(find(client, chosen), "Current ACLs for resource", ":\n")


def _remove(client: "Client", options: argparse.Namespace, patterns: list[Pattern]) -> None:
    there = find(client, patterns)
    if options.allow_principal or options.deny_principal:
        rules = {acl._replace(resource="", pattern="", name="") for acl in _plan(options, patterns)}
        there = [acl for acl in there if acl._replace(resource="", pattern="", name="") in rules]
    if not there:
        return
    if not options.force:
        _show(there, "Removing ACLs for resource", ":\n")
        print("Are these ACLs to be removed? (y/n) ", end="", flush=True)
        if sys.stdin.readline().strip().lower() != "y":
            return
    delete(client, there)


def _show(found: Iterable[Acl], title: str, end: str) -> None:
    by_resource: dict[str, list[Acl]] = {}
    for acl in found:
        kind, pattern = (word.upper().replace("-", "_") for word in (acl.resource, acl.pattern))
        resource = f"ResourcePattern(resourceType={kind}, name={acl.name}, patternType={pattern})"
        by_resource.setdefault(resource, []).append(acl)
    for resource, acls in by_resource.items():
        print(f"{title} `{resource}`", end=end)
        for acl in acls:
            operation = acl.operation.upper().replace("-", "_")
            rule = f"operation={operation}, permissionType={acl.permission.upper()}"
            print(f"\t(principal={acl.principal}, host={acl.host}, {rule})")
        print()
