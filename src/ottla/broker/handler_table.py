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
from ottla.wire import frames

Frame = bytes | bytearray | memoryview
Refuse = Callable[[Call[Any], ErrorCode, str], Any]
Written = bytes | bytearray | list[Part]
"""A response behind its header: in one piece, or in parts."""
Codec = tuple[Callable[[int, Frame, int], Any], Callable[[int, Any, bytes], Written], Refuse]
"""Reads a request of a version from a position on; writes a response of a version behind its header; refuses."""


class Handler(NamedTuple):
    api: frames.Api
    versions: range
    handle: Callable[[Node, Call[Any]], Any]
    codec: Codec | None
    """Its own; else the one that is made of the API's schema."""


def load_handlers() -> Mapping[int, Handler]:
    """Every handler by API key."""
    table = {}
    for module_info in pkgutil.iter_modules(handlers.__path__):
        if not frames.is_api(module_info.name):  # a helper that handlers share
            continue
        api = frames.api_named(module_info.name)
        module = import_module(f"{handlers.__name__}.{module_info.name}")
        table[api.key] = Handler(api, module.VERSIONS, module.handle, getattr(module, "CODEC", None))
    return dict(sorted(table.items()))


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
        "UpdateFeatures",
        "WriteTxnMarkers",
        "CreateAcls",
        "DeleteAcls",
        "AlterClientQuotas",
        "AlterUserScramCredentials",
    )
)
"""What a read-only broker refuses. The coordinators' state goes to memory, so that groups work as ever; a producer gets
its identity, and the reason with its first batch: without an identity librdkafka would ask again and again."""


def refuse_writes(table: Mapping[int, Handler]) -> Mapping[int, Handler]:
    """The same table for a broker that must not change anything."""

    def refuse(node: Node, call: Call[Any]) -> Any:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "this broker is read-only")

    return {
        key: handler._replace(handle=refuse) if handler.api.name in WRITES else handler
        for key, handler in table.items()
    }
