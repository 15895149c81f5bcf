"""Writes a line of the audit log for each administrative request: who asked for what, and which errors the answer has.

Only a broker with an authorizer does so. The line is written when the answer is ready.
"""

from types import CoroutineType
from typing import Any

from ottla.broker.call import Call
from ottla.broker.handler_table import Handler
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.security import audit
from ottla.wire.error_codes import find_error_codes
from ottla.wire.message import Message

ADMINISTRATIVE = frozenset(
    (
        "AlterClientQuotas",
        "AlterConfigs",
        "AlterPartitionReassignments",
        "AlterReplicaLogDirs",
        "AlterUserScramCredentials",
        "CreateAcls",
        "CreateDelegationToken",
        "CreatePartitions",
        "CreateTopics",
        "DeleteAcls",
        "DeleteGroups",
        "DeleteRecords",
        "DeleteTopics",
        "ElectLeaders",
        "ExpireDelegationToken",
        "IncrementalAlterConfigs",
        "OffsetDelete",
        "RenewDelegationToken",
        "UnregisterBroker",
        "UpdateFeatures",
    )
)
"""APIs that change the cluster."""

NAMING = frozenset(
    (
        "broker_id",
        "entity_name",
        "feature",
        "group_id",
        "groups_names",
        "name",
        "owner_principal_name",
        "principal",
        "principal_filter",
        "resource_name",
        "resource_name_filter",
        "topic",
        "topic_names",
    )
)
"""Fields that say what a request is about. Values of settings, and everything secret, are in none of them."""

NAMES_MAX = 20


def log_administration(handler: Handler) -> Handler:
    """The handler, or one that logs its requests if they are administrative."""
    if handler.api.name not in ADMINISTRATIVE:
        return handler
    name, handle = handler.api.name, handler.handle

    def note(call: Call[Any], names: str, response: Any) -> Any:
        codes = sorted({code for code in find_error_codes(response) if code}) if isinstance(response, Message) else []
        audit.log_administration(call.client, name, names, ",".join(_name_error(code) for code in codes))
        return response

    async def note_later(call: Call[Any], names: str, response: Any) -> Any:
        try:
            return note(call, names, await response)
        except KafkaError as error:
            audit.log_administration(call.client, name, names, error.code.name)
            raise

    def handle_and_log(node: Node, call: Call[Any]) -> Any:
        names = list_names(call.body)  # before the handler changes the request
        try:
            response = handle(node, call)
        except KafkaError as error:
            audit.log_administration(call.client, name, names, error.code.name)
            raise
        if response.__class__ is CoroutineType:
            return note_later(call, names, response)
        return note(call, names, response)

    return handler._replace(handle=handle_and_log)


def list_names(request: Any) -> str:
    """What a request is about: its names, up to a limit."""
    found: dict[str, None] = {}
    _collect(request, found)
    names = list(found)
    more = len(names) - NAMES_MAX
    return ", ".join(names[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")


def _collect(value: Any, found: dict[str, None]) -> None:
    if isinstance(value, list):
        for each in value:
            _collect(each, found)
    elif isinstance(value, Message):
        for name, *_ in value.FIELDS:
            inner = getattr(value, name)
            if name in NAMING and not isinstance(inner, Message):
                for each in inner if isinstance(inner, list) else [inner]:
                    if isinstance(each, Message):
                        _collect(each, found)
                    elif each not in (None, ""):
                        found[audit.shorten(str(each))] = None
            else:
                _collect(inner, found)


def _name_error(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
