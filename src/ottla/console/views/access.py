"""ACLs, users and quotas, where the cluster has them; changes of ACLs."""

from collections.abc import Callable
from typing import TypeVar

from starlette.responses import Response

from ottla.client.client import Client
from ottla.client.scram_users import MECHANISMS
from ottla.console import copying
from ottla.console.calls import BadInput, Call, explain, parse_number
from ottla.console.facts.access import (
    OPERATIONS,
    PATTERNS,
    PERMISSIONS,
    RESOURCES,
    Acl,
    create_acl,
    delete_acl,
    list_acls,
)
from ottla.console.facts.quotas import KEYS, TYPES, list_quotas
from ottla.console.facts.users import list_users
from ottla.errors import KafkaError

T = TypeVar("T")


def show(call: Call) -> Response:
    with call.console.clients.borrow() as client:
        acls, no_acls = _ask(client, list_acls)
        users, no_users = _ask(client, list_users)
        quotas, no_quotas = _ask(client, list_quotas)
    return call.page(
        "access.html",
        acls=acls,
        no_acls=no_acls,
        users=users,
        no_users=no_users,
        quotas=quotas,
        no_quotas=no_quotas,
        resources=RESOURCES,
        patterns=PATTERNS,
        operations=OPERATIONS,
        permissions=PERMISSIONS,
        quota_keys=KEYS,
        quota_types=TYPES,
        mechanisms=list(MECHANISMS),
        copies=copying.copy_access(call.console.options),
    )


def _ask(client: Client, question: Callable[[Client], list[T]]) -> tuple[list[T], str]:
    """What there is, or why the cluster does not say it."""
    try:
        return question(client), ""
    except KafkaError as error:
        return [], explain(error)


def change(call: Call) -> Response:
    acl = Acl(
        _read_code(call, "resource_type", RESOURCES),
        call.field("resource_name").strip(),
        _read_code(call, "pattern_type", PATTERNS),
        call.field("principal").strip(),
        call.field("host").strip() or "*",
        _read_code(call, "operation", OPERATIONS),
        _read_code(call, "permission", PERMISSIONS),
    )
    if not acl.principal or not acl.resource_name:
        raise BadInput("an ACL needs a principal, such as User:alice, and the name of a resource")
    action = call.field("action")
    with call.console.clients.borrow() as client:
        if action == "create":
            create_acl(client, acl)
            return call.redirect("/access", "The ACL is created.")
        if action == "delete":
            count = delete_acl(client, acl)
            return call.redirect("/access", "The ACL is deleted." if count else "The ACL was gone already.")
    raise BadInput(f"there is no action {action!r}")


def _read_code(call: Call, name: str, among: dict[int, str]) -> int:
    code = parse_number(call.field(name), name, 0, 127)
    if code not in among:
        raise BadInput(f"{name}: {code} is not known")
    return code
