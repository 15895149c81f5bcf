"""The same requests about groups' offsets and settings at Apache Kafka and at this broker: the same answers."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla.wire.message import Message
from ottla.wire.messages import alter_configs as replacing
from ottla.wire.messages import describe_configs as describing
from ottla.wire.messages import incremental_alter_configs as altering
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.kafka_peer import Clients
from tests.raw_client import RawClient
from tests.scenarios.answer_comparison import find_differences
from tests.scenarios.client_calls import create_topic, find_topic_id

LONG = "x" * 5000
UNKNOWN_ID = bytes(15) + b"n"
GROUP = 32
SET, DELETE, APPEND = 0, 1, 2
SESSION = "consumer.session.timeout.ms"
READS_SETTINGS = (describing.DescribeConfigsResponse, ListConfigResourcesResponse)
SETTLE_S = 30
"""Kafka answers a change of settings before its broker has applied it, so what it says of them may be old for a while.
Ours is asked once."""

TopicId = Callable[[str], bytes]
Ask = Callable[[TopicId], tuple[Message, int]]


def commit(group: str, offset: int, version: int = 9, **fields: Any) -> Ask:
    topic, partition, metadata = fields.pop("topic", "t"), fields.pop("partition", 0), fields.pop("metadata", "")

    def ask(topic_id: TopicId) -> tuple[Message, int]:
        asked = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_leader_epoch=4, committed_metadata=metadata
        )
        named = OffsetCommitRequestTopic(name=topic, topic_id=topic_id(topic), partitions=[asked])
        return OffsetCommitRequest(group_id=group, topics=[named], **fields), version

    return ask


def fetch(group: str, version: int, *topics: str, everything: bool = False, stable: bool = False, **fields: Any) -> Ask:
    def ask(topic_id: TopicId) -> tuple[Message, int]:
        if version < 8:
            old = [OffsetFetchRequestTopic(name=name, partition_indexes=[0, 1]) for name in topics]
            request = OffsetFetchRequest(group_id=group, topics=None if everything else old, require_stable=stable)
            return request, version
        new = [OffsetFetchRequestTopics(name=n, topic_id=topic_id(n), partition_indexes=[0, 1]) for n in topics]
        asked = OffsetFetchRequestGroup(group_id=group, topics=None if everything else new, **fields)
        return OffsetFetchRequest(groups=[asked], require_stable=stable), version

    return ask


def forget(group: str, *topics: str) -> Ask:
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 7)]
    named = [OffsetDeleteRequestTopic(name=name, partitions=partitions) for name in topics]
    return lambda topic_id: (OffsetDeleteRequest(group_id=group, topics=named), 0)


def plain(message: Message, version: int) -> Ask:
    return lambda topic_id: (message, version)


def commit_in_transaction(group: str, topic: str, version: int = 3, **fields: Any) -> Ask:
    partition = TxnOffsetCommitRequestPartition(committed_offset=3, committed_metadata=fields.pop("metadata", ""))
    named = TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])
    fields = {"transactional_id": "tx", "producer_id": 999, "producer_epoch": 0, **fields}
    return lambda topic_id: (TxnOffsetCommitRequest(group_id=group, topics=[named], **fields), version)


def alter_settings(group: str, *changes: tuple[str, int, str | None], validate_only: bool = False) -> Ask:
    configs = [altering.AlterableConfig(name=name, config_operation=op, value=value) for name, op, value in changes]
    resource = altering.AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=configs)
    return plain(altering.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only), 1)


def replace_settings(group: str, **settings: str) -> Ask:
    configs = [replacing.AlterableConfig(name=name.replace("_", "."), value=text) for name, text in settings.items()]
    resource = replacing.AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=configs)
    return plain(replacing.AlterConfigsRequest(resources=[resource]), 2)


def describe_settings(group: str, *names: str) -> Ask:
    resource = describing.DescribeConfigsResource(
        resource_type=GROUP, resource_name=group, configuration_keys=list(names) or None
    )
    return plain(describing.DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4)


MEMBER: dict[str, Any] = {"member_id": "m", "generation_id_or_member_epoch": 1}
COMMITS, FETCHES, FETCHES_OF_ALL = range(2, 11), range(1, 11), range(2, 11)
SCRIPT: dict[str, Ask] = {
    **{f"commit v{v}": commit(f"g{v}", v, v) for v in COMMITS},
    **{f"fetch v{v}": fetch("g5", v, "t") for v in FETCHES},
    **{f"fetch of all v{v}": fetch("g5", v, everything=True) for v in FETCHES_OF_ALL},
    **{f"fetch of nothing v{v}": fetch("g5", v) for v in FETCHES},
    **{f"fetch of an unknown group v{v}": fetch("nobody", v, "t") for v in FETCHES},
    **{f"fetch of all of an unknown group v{v}": fetch("nobody", v, everything=True) for v in FETCHES_OF_ALL},
    **{f"fetch of an unknown topic v{v}": fetch("g5", v, "nowhere") for v in FETCHES},
    **{f"commit for an unknown topic v{v}": commit("g5", 1, v, topic="nowhere") for v in COMMITS},
    **{f"commit by a member of no group v{v}": commit("new", 1, v, **MEMBER) for v in COMMITS},
    **{f"commit by a member of an empty group v{v}": commit("g5", 1, v, **MEMBER) for v in COMMITS},
    "a name without a generation": commit("g5", 1, member_id="m"),
    "an instance without a generation": commit("g5", 1, group_instance_id="i"),
    "long metadata": commit("g5", 1, metadata=LONG),
    "no metadata": commit("g5", 1, metadata=None),
    "a partition that is not there": commit("g5", 1, partition=7),
    "an offset below zero": commit("g5", -5),
    "no offset": commit("g5", -1),
    "what there is now": fetch("g5", 9, everything=True),
    "a retention of its own": commit("g5", 8, 4, retention_time_ms=10_000),
    "a group without a name": commit("", 3),
    "its offset": fetch("", 9, "t"),
    "fetch as a member of no group": fetch("nobody", 9, "t", member_id="m", member_epoch=1),
    "fetch as a member of a classic group": fetch("g5", 9, "t", member_id="m", member_epoch=1),
    "stable offsets": fetch("g5", 7, "t", stable=True),
    "forget": forget("g5", "t", "nowhere"),
    "forget of an unknown group": forget("nobody", "t"),
    "forget of a group without a name": forget("", "t"),
    "what is left": fetch("g5", 9, everything=True),
    "listed": plain(ListGroupsRequest(), 5),
    "listed by state": plain(ListGroupsRequest(states_filter=["empty", "Stable"]), 5),
    "listed by an unknown state": plain(ListGroupsRequest(states_filter=["nonsense"]), 5),
    "listed by type": plain(ListGroupsRequest(types_filter=["Classic"]), 5),
    "listed by another type": plain(ListGroupsRequest(types_filter=["consumer"]), 5),
    "listed by an unknown type": plain(ListGroupsRequest(types_filter=["nonsense"]), 5),
    "listed in version 0": plain(ListGroupsRequest(), 0),
    "described": plain(DescribeGroupsRequest(groups=["g5", "nobody"]), 6),
    "described in version 5": plain(DescribeGroupsRequest(groups=["g5", "nobody"]), 5),
    "pending for nobody": commit_in_transaction("", "t"),
    "pending of a member of no group": commit_in_transaction("newer", "t", member_id="m", generation_id=4),
    "deleted": plain(DeleteGroupsRequest(groups_names=["g5", "nobody", "", "g6", "g6"]), 2),
    "what a deleted group has": fetch("g6", 9, everything=True),
    "what is left of the groups": plain(ListGroupsRequest(), 4),
    "nothing to delete": plain(DeleteGroupsRequest(groups_names=[]), 2),
    "coordinator of an unknown kind": plain(FindCoordinatorRequest(coordinator_keys=["a"], key_type=9), 6),
    "coordinator of a share": plain(FindCoordinatorRequest(coordinator_keys=["a"], key_type=2), 6),
    "coordinator of nothing": plain(FindCoordinatorRequest(coordinator_keys=[]), 6),
}
SETTINGS_SCRIPT: dict[str, Ask] = {
    "settings of a new group": describe_settings("s"),
    "one is set": alter_settings("s", (SESSION, SET, "50000")),
    "another": alter_settings("s", ("share.auto.offset.reset", SET, "by_duration:PT5M")),
    "settings with own ones": describe_settings("s"),
    "groups with settings": plain(ListConfigResourcesRequest(resource_types=[GROUP]), 1),
    "an unknown one": alter_settings("s", ("nonsense", SET, "1")),
    "below the limit": alter_settings("s", (SESSION, SET, "1")),
    "above the limit": alter_settings("s", (SESSION, SET, "100000")),
    "no number": alter_settings("s", (SESSION, SET, "x")),
    "no value": alter_settings("s", (SESSION, SET, None)),
    "no list": alter_settings("s", (SESSION, APPEND, "x")),
    "no offset reset": alter_settings("s", ("share.auto.offset.reset", SET, "nonsense")),
    "no group": alter_settings("", (SESSION, SET, "50000")),
    "settings of no group": describe_settings(""),
    "only tried": alter_settings("v", (SESSION, SET, "50000"), validate_only=True),
    "not there": describe_settings("v", SESSION),
    "all replaced": replace_settings("s", consumer_session_timeout_ms="46000"),
    "settings that are left": describe_settings("s"),
    "deleted": alter_settings("s", (SESSION, DELETE, None)),
    "groups without settings": plain(ListConfigResourcesRequest(resource_types=[GROUP]), 1),
}


@pytest.fixture(scope="module")
def sides(both_clients: Clients) -> Clients:
    for client in both_clients:
        create_topic(client, "t")
        while client.request(ListGroupsRequest(), 4).error_code:
            pass
    return both_clients


@pytest.mark.parametrize("script", [SCRIPT, SETTINGS_SCRIPT], ids=["offsets", "settings"])
def test_both_brokers_give_the_same_answers(script: dict[str, Ask], sides: Clients) -> None:
    """The requests are sent one after the other. The message names each request whose answers differ."""
    different = []
    for name, ask in script.items():
        theirs, ours = (answer(client, ask) for client in sides)
        found = find_differences(theirs, ours)
        deadline_s = time.monotonic() + SETTLE_S
        while found and isinstance(theirs, READS_SETTINGS) and time.monotonic() < deadline_s:
            found = find_differences(answer(sides[0], ask), ours)
        different += [f"{name}: {each}" for each in found]
    assert not different, "\n".join(different)


def answer(client: RawClient, ask: Ask) -> Any:
    message, version = ask(lambda topic: find_topic_id(client, topic) if topic == "t" else UNKNOWN_ID)
    return client.request(message, version)
