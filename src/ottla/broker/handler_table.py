"""Every handler by API key, gathered from the modules of `ottla.handlers`.

Dispatch and ApiVersions are derived from this table, so they cannot disagree with the handlers.
"""

import pkgutil
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from ottla import handlers
from ottla.broker.call import Call, Part
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import require_one
from ottla.security.rights import Requirement
from ottla.wire import frames

Frame = bytes | bytearray | memoryview
Refuse = Callable[[Call[Any], ErrorCode, str], Any]
Written = bytes | bytearray | list[Part]
"""A response header and body: in one piece, or in parts."""
Codec = tuple[Callable[[int, Frame, int], Any], Callable[[int, Any, bytes], Written], Refuse]
"""Three functions: read a request of a version from a position on, write a response of a version after its header, and
build the response to a request that failed as a whole."""


class Handler(NamedTuple):
    api: frames.Api
    versions: range
    requires: Requirement
    """The rights that clients need."""
    handle: Callable[[Node, Call[Any]], Any]
    codec: Codec | None
    """The codec of a handler that reads and writes without a schema. None: it is compiled from the schema of the
    API."""


def load_handlers() -> Mapping[int, Handler]:
    """Every handler by API key."""
    table = {}
    for module_info in pkgutil.iter_modules(handlers.__path__):
        if not frames.is_api(module_info.name):  # a helper that handlers share
            continue
        api = frames.find_api_by_folder(module_info.name)
        module = import_module(f"{handlers.__name__}.{module_info.name}")
        requires = getattr(module, "REQUIRES", None)
        if not isinstance(requires, Requirement):
            raise TypeError(f"{module.__name__} does not declare in REQUIRES which rights clients need for {api.name}")
        table[api.key] = Handler(api, module.VERSIONS, requires, module.handle, getattr(module, "CODEC", None))
    return dict(sorted(table.items()))


TELEMETRY = ("GetTelemetrySubscriptions", "PushTelemetry")


def advertise(table: Mapping[int, Handler], *, telemetry: bool) -> Mapping[int, range]:
    """The versions of each API that clients are told of. As in Kafka, those of telemetry only if somebody sees it."""
    return {key: handler.versions for key, handler in table.items() if telemetry or handler.api.name not in TELEMETRY}


WRITES = frozenset(
    (
        "Produce",
        "CreateTopics",
        "DeleteTopics",
        "CreatePartitions",
        "DeleteRecords",
        "AlterConfigs",
        "IncrementalAlterConfigs",
        "AlterReplicaLogDirs",
        "ElectLeaders",
        "AlterPartitionReassignments",
        "UnregisterBroker",
        "UpdateFeatures",
        "WriteTxnMarkers",
        "CreateAcls",
        "DeleteAcls",
        "AlterClientQuotas",
        "AlterUserScramCredentials",
        "CreateDelegationToken",
        "RenewDelegationToken",
        "ExpireDelegationToken",
    )
)
"""APIs that a read-only broker refuses. Groups work as usual, because the state of coordinators is written to memory.
InitProducerId works too, and the producer is refused with its first batch: librdkafka would repeat a failed
InitProducerId again and again."""


def refuse_writes(table: Mapping[int, Handler]) -> Mapping[int, Handler]:
    """The table of a read-only broker: handlers that write answer POLICY_VIOLATION."""

    def refuse(node: Node, call: Call[Any]) -> Any:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "this broker is read-only")

    return {
        key: handler._replace(handle=refuse) if handler.api.name in WRITES else handler
        for key, handler in table.items()
    }


def require_rights(table: Mapping[int, Handler]) -> Mapping[int, Handler]:
    """The table of a broker with an authorizer: requests that need a right as a whole are refused without it. What
    else a handler requires, it checks itself."""

    def guard(handler: Handler) -> Handler:
        rights, handle = handler.requires.rights, handler.handle

        def check_and_handle(node: Node, call: Call[Any]) -> Any:
            require_one(node, call, rights)
            return handle(node, call)

        return handler._replace(handle=check_and_handle)

    return {key: guard(handler) if handler.requires.is_whole else handler for key, handler in table.items()}
