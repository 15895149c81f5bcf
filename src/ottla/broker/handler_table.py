"""Every handler by API key, from the modules of `ottla.handlers`, and the versions that they answer.

Dispatch and ApiVersions are derived from this table, so they cannot disagree. The module of a handler is imported with
the first request of its API: a broker starts sooner, and keeps no code and no messages in memory that no client uses.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from ottla.broker.call import Call, Part
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
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


VERSIONS = {
    "produce": range(3, 14),
    "fetch": range(4, 19),
    "list_offsets": range(1, 12),
    "metadata": range(0, 14),
    "offset_commit": range(2, 11),
    "offset_fetch": range(1, 11),
    "find_coordinator": range(0, 7),
    "join_group": range(0, 10),
    "heartbeat": range(0, 5),
    "leave_group": range(0, 6),
    "sync_group": range(0, 6),
    "describe_groups": range(0, 7),
    "list_groups": range(0, 6),
    "sasl_handshake": range(0, 2),
    "api_versions": range(0, 5),
    "create_topics": range(2, 8),
    "delete_topics": range(1, 7),
    "delete_records": range(0, 3),
    "init_producer_id": range(0, 6),
    "offset_for_leader_epoch": range(2, 5),
    "add_partitions_to_txn": range(0, 6),
    "add_offsets_to_txn": range(0, 5),
    "end_txn": range(0, 6),
    "write_txn_markers": range(1, 3),
    "txn_offset_commit": range(0, 6),
    "describe_acls": range(1, 4),
    "create_acls": range(1, 4),
    "delete_acls": range(1, 4),
    "describe_configs": range(1, 5),
    "alter_configs": range(0, 3),
    "alter_replica_log_dirs": range(1, 3),
    "describe_log_dirs": range(1, 6),
    "sasl_authenticate": range(0, 3),
    "create_partitions": range(0, 4),
    "create_delegation_token": range(1, 4),
    "renew_delegation_token": range(1, 3),
    "expire_delegation_token": range(1, 3),
    "describe_delegation_token": range(1, 4),
    "delete_groups": range(0, 3),
    "elect_leaders": range(0, 3),
    "incremental_alter_configs": range(0, 2),
    "alter_partition_reassignments": range(0, 2),
    "list_partition_reassignments": range(0, 1),
    "offset_delete": range(0, 1),
    "describe_client_quotas": range(0, 2),
    "alter_client_quotas": range(0, 2),
    "describe_user_scram_credentials": range(0, 1),
    "alter_user_scram_credentials": range(0, 1),
    "describe_quorum": range(0, 3),
    "update_features": range(0, 3),
    "describe_cluster": range(0, 3),
    "describe_producers": range(0, 1),
    "unregister_broker": range(0, 1),
    "describe_transactions": range(0, 1),
    "list_transactions": range(0, 3),
    "consumer_group_heartbeat": range(0, 2),
    "consumer_group_describe": range(0, 2),
    "get_telemetry_subscriptions": range(0, 1),
    "push_telemetry": range(0, 1),
    "list_config_resources": range(0, 2),
    "describe_topic_partitions": range(0, 1),
}
"""The versions of each API that its handler answers, by the name of the module."""


class HandlerTable(Mapping[int, Handler]):
    """The handlers by API key, each loaded when it is first asked for. `wrap` may put something around each of them."""

    def __init__(self, wrap: Callable[[Handler], Handler] | None = None) -> None:
        self._wrap = wrap
        self._apis = {api.key: api for api in map(frames.find_api_by_folder, VERSIONS)}
        self._loaded: dict[int, Handler] = {}

    def __getitem__(self, key: int) -> Handler:
        handler = self._loaded.get(key)
        if handler is None:
            handler = load_handler(self._apis[key])
            if self._wrap is not None:
                handler = self._wrap(handler)
            self._loaded[key] = handler
        return handler

    def __iter__(self) -> Iterator[int]:
        return iter(self._apis)

    def __len__(self) -> int:
        return len(self._apis)


def load_handler(api: frames.Api) -> Handler:
    module = import_module(f"ottla.handlers.{api.folder}")
    requires = getattr(module, "REQUIRES", None)
    if not isinstance(requires, Requirement):
        raise TypeError(f"{module.__name__} does not declare in REQUIRES which rights clients need for {api.name}")
    return Handler(api, VERSIONS[api.folder], requires, module.handle, getattr(module, "CODEC", None))


TELEMETRY = ("GetTelemetrySubscriptions", "PushTelemetry")


def advertise(*, telemetry: bool) -> Mapping[int, range]:
    """The versions of each API that ApiVersions lists. As in Kafka, telemetry is in it only with a receiver."""
    apis = map(frames.find_api_by_folder, VERSIONS)
    return {api.key: VERSIONS[api.folder] for api in apis if telemetry or api.name not in TELEMETRY}


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


def refuse_writes(handler: Handler) -> Handler:
    """The handler of a read-only broker: one that writes answers POLICY_VIOLATION."""

    def refuse(node: Node, call: Call[Any]) -> Any:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "this broker is read-only")

    return handler._replace(handle=refuse) if handler.api.name in WRITES else handler
