"""The audit log: one line for each action that was denied, and for each administrative one.

The logger has Kafka's name, so settings for log files that people have keep working. Denied actions are logged at INFO,
allowed ones at DEBUG, in the words of Kafka's StandardAuthorizer. Nothing that a client sends can start a line or look
like another field: names are quoted if they contain anything but printable characters without blanks.
"""

import logging

from ottla.observability.logs import fields
from ottla.security.acls import Acl
from ottla.security.authorizer import Client, Verdict
from ottla.security.rights import Right

logger = logging.getLogger("kafka.authorizer.logger")

NAME_LENGTH_MAX = 300
"""How much of a name is logged. A client can send names of 32 KB, thousands of them in a request."""


def log_decision(client: Client, right: Right, name: str, api: str, verdict: Verdict) -> None:
    logger.log(
        logging.DEBUG if verdict.allowed else logging.INFO,
        "%s",
        "allowed" if verdict.allowed else "denied",
        extra=fields(
            principal=client.principal,
            operation=right.operation.name,
            host=client.address,
            resource=f"{_to_camel_case(right.resource_type.name)}:LITERAL:{shorten(name)}",
            request=api,
            rule=verdict.rule if verdict.acl is None else f"{verdict.rule} {_describe(verdict.acl)}",
        ),
    )


def log_administration(client: Client, api: str, names: str, errors: str) -> None:
    extra = fields(
        principal=client.principal, host=client.address, request=api, names=names or None, errors=errors or None
    )
    logger.info("done", extra=extra)


def shorten(name: str) -> str:
    """The name, or its beginning and its length if it is long."""
    return name if len(name) <= NAME_LENGTH_MAX else f"{name[:NAME_LENGTH_MAX]}... ({len(name)} characters)"


def logs_allowed() -> bool:
    return logger.isEnabledFor(logging.DEBUG)


def _describe(acl: Acl) -> str:
    resource = f"{_to_camel_case(acl.resource_type.name)}:{acl.pattern_type.name}:{acl.name}"
    return f"{acl.permission.name} {acl.operation.name} {resource} {acl.principal} {acl.host}"


def _to_camel_case(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))
