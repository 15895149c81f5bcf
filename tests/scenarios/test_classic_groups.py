"""Classic groups over the wire: every version, refusals, time, restarts. The tests advance the clock of the broker."""

import os
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from ottla.coordinators.internal_topics import key_hash
from ottla.errors import ErrorCode
from ottla.testing import LocalBroker
from ottla.testing import broker as local_broker
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.raw_client import RawClient
from tests.scenarios.group_scripts import GroupPlayer

DELAY_MS = 3000

_numbers = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with local_broker(group_initial_rebalance_delay_ms=DELAY_MS) as running:
        running.create_topic("t")
        yield running


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[RawClient]:
    with RawClient(broker.host, broker.port, "client") as connected:
        yield connected


@pytest.fixture
def player(broker: LocalBroker) -> Iterator[GroupPlayer]:
    with GroupPlayer((broker.host, broker.port), f"played-{next(_numbers)}", "t") as found:
        yield found


def build_join(group: str, member_id: str = "", **changes: Any) -> JoinGroupRequest:
    fields: dict[str, Any] = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0")],
    }
    return JoinGroupRequest(group_id=group, member_id=member_id, **{**fields, **changes})


def join(broker: LocalBroker, client: RawClient, request: JoinGroupRequest, version: int = 9) -> JoinGroupResponse:
    """Join a group until its first generation is complete."""
    if version >= 4 and request.group_instance_id is None:
        required = client.request(request, version)
        assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED
        request.member_id = required.member_id
    client.send_request(request, version)
    with RawClient(broker.host, broker.port) as other:
        while describe(other, request.group_id).group_state != "PreparingRebalance":
            pass
    broker.advance(ms=DELAY_MS)
    joined: JoinGroupResponse = client.read_response(request, version)
    assert joined.error_code == 0
    return joined


def build_sync(group: str, joined: JoinGroupResponse, assignment: bytes = b"p0") -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)],
    )


def build_heartbeat(group: str, joined: JoinGroupResponse) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)


def describe(client: RawClient, group: str, version: int = 6, **options: Any) -> Any:
    (found,) = client.request(DescribeGroupsRequest(groups=[group], **options), version).groups
    return found


@pytest.mark.parametrize("version", JoinGroupRequest.VERSIONS)
def test_every_version(version: int, broker: LocalBroker, client: RawClient) -> None:
    # A member joins, syncs, sends a heartbeat and leaves, each in this version or in the newest one of the request.
    group = f"version-{version}"
    joined = join(broker, client, build_join(group), version)
    assert (joined.generation_id, joined.protocol_name, joined.leader) == (1, "range", joined.member_id)
    assert [each.member_id for each in joined.members] == [joined.member_id]
    assert client.request(build_sync(group, joined), min(version, 5)).assignment == b"p0"
    assert client.request(build_heartbeat(group, joined), min(version, 4)).error_code == 0
    described = describe(client, group, min(version, 6))
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    (member,) = described.members
    assert (member.client_id, member.client_host, member.member_assignment) == ("client", "/127.0.0.1", b"p0")
    identity = MemberIdentity(member_id=joined.member_id)
    leaving = LeaveGroupRequest(group_id=group, member_id=joined.member_id, members=[identity])
    assert client.request(leaving, min(version, 5)).error_code == 0
    assert describe(client, group, min(version, 6)).group_state == "Empty"
    left = client.request(leaving, min(version, 5))
    code = left.error_code if version < 3 else left.members[0].error_code
    assert code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_needs_a_name(client: RawClient) -> None:
    # Every request that changes a group answers INVALID_GROUP_ID.
    nobody = JoinGroupResponse()
    for request, version in (
        (build_join(""), 9),
        (build_sync("", nobody), 5),
        (build_heartbeat("", nobody), 4),
        (LeaveGroupRequest(), 5),
    ):
        assert client.request(request, version).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("session_ms", [5999, 1_800_001, -1, 0])
def test_session_timeouts_have_limits(session_ms: int, client: RawClient) -> None:
    # The limits are group.min.session.timeout.ms and group.max.session.timeout.ms. A refusal returns the member id of
    # the request.
    answer = client.request(build_join("limited", "some id", session_timeout_ms=session_ms), 9)
    assert (answer.error_code, answer.member_id) == (ErrorCode.INVALID_SESSION_TIMEOUT, "some id")
    assert describe(client, "limited").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_requests_for_an_unknown_group(client: RawClient) -> None:
    # The error depends on the request. DescribeGroups has none before version 6.
    somebody = JoinGroupResponse(member_id="nobody knows", generation_id=1)
    assert client.request(build_join("none", "nobody knows"), 9).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert client.request(build_sync("none", somebody), 5).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert client.request(build_heartbeat("none", somebody), 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    left = client.request(LeaveGroupRequest(group_id="none", members=[MemberIdentity(member_id="nobody knows")]), 5)
    assert (left.error_code, left.members[0].error_code) == (0, ErrorCode.UNKNOWN_MEMBER_ID)
    new, old = describe(client, "none", 6), describe(client, "none", 5)
    assert (new.error_code, new.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert new.error_message
    assert (old.error_code, old.group_state) == (0, "Dead")


def test_describe_groups_lists_authorized_operations(broker: LocalBroker, client: RawClient) -> None:
    # Only on request. They are: read, delete and describe the group, describe and alter its settings.
    join(broker, client, build_join("allowed"))
    assert describe(client, "allowed").authorized_operations == -(2**31)
    allowed = describe(client, "allowed", include_authorized_operations=True).authorized_operations
    assert allowed == sum(1 << operation for operation in (3, 6, 8, 10, 11))


def test_a_sync_must_name_the_protocol_of_the_group(broker: LocalBroker, client: RawClient) -> None:
    # From version 5 on another protocol, or none, is refused.
    joined = join(broker, client, build_join("chosen"))
    for wrong in ({"protocol_name": None}, {"protocol_type": None}, {"protocol_name": "sticky"}):
        request = build_sync("chosen", joined)
        for name, value in wrong.items():
            setattr(request, name, value)
        assert client.request(request, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert client.request(build_sync("chosen", joined), 5).error_code == 0


def test_a_long_client_id_makes_a_member_id_that_can_be_stored(broker: LocalBroker) -> None:
    # The member id contains the client id, but not all of one with thirty thousand letters.
    with RawClient(broker.host, broker.port, "x" * 30_000) as client:
        joined = join(broker, client, build_join("long"))
        assert len(joined.member_id) < 500
        assert client.request(build_sync("long", joined), 5).error_code == 0


def test_a_refused_commit_is_never_stored(player: GroupPlayer, broker: LocalBroker) -> None:
    # Commits of an old generation, an unknown member, one that left, one that was fenced: the last good offset stays.
    player.play("""
        a joins instance=i1 version=9 ...
        b joins version=3 ...
    """)
    for _ in range(2):  # b came while a waited, so both wait once more
        broker.advance(ms=DELAY_MS)
    player.play("""
        wait for a b
        a syncs a=p0 b=p1
        b syncs
    """)
    assert player.act("b commits") == ["b: commits NONE"]
    refused = [
        *player.act("b commits 0"),
        *player.act("b commits 7"),
        *player.act("x commits 1"),
        *player.act("x commits -1"),
        *player.act("b leaves"),
        *player.act("b commits"),
        *player.act("c joins instance=i1 version=9 ..."),
        *player.act("a commits"),
    ]
    assert refused == [
        "b: commits ILLEGAL_GENERATION",
        "b: commits ILLEGAL_GENERATION",
        "x: commits UNKNOWN_MEMBER_ID",
        "x: commits UNKNOWN_MEMBER_ID",
        "b: NONE NONE",
        "b: commits UNKNOWN_MEMBER_ID",
        "c: generation 2 consumer range leads i1 ",
        "a: commits FENCED_INSTANCE_ID",
    ]
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    with RawClient(broker.host, broker.port) as reader:
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=player.group, topics=topics)])
        (group,) = reader.request(asked, 9).groups
    assert group.topics[0].partitions[0].committed_offset == 1


def test_sessions_end_with_the_brokers_clock(broker: LocalBroker, client: RawClient) -> None:
    # Only time that passes counts, not steps of the wall clock.
    joined = join(broker, client, build_join("ticking"))
    client.request(build_sync("ticking", joined), 5)
    broker.advance(ms=7000)
    assert client.request(build_heartbeat("ticking", joined), 4).error_code == 0
    broker.advance(ms=7000)
    assert client.request(build_heartbeat("ticking", joined), 4).error_code == 0
    broker.advance(ms=10_001)
    assert client.request(build_heartbeat("ticking", joined), 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert describe(client, "ticking").group_state == "Empty"


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_members_survive_a_restart(end: str) -> None:
    # Members, generation and assignment are restored. A member that sends no heartbeat within a session is removed.
    with local_broker(group_initial_rebalance_delay_ms=DELAY_MS) as broker:
        with RawClient(broker.host, broker.port, "client") as client:
            joined = join(broker, client, build_join("kept"))
            client.request(build_sync("kept", joined), 5)
            before = describe(client, "kept")
        getattr(broker, end)()
        broker.restart()
        with RawClient(broker.host, broker.port, "client") as client:
            while describe(client, "kept").error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                pass
            assert describe(client, "kept") == before
            assert client.request(build_heartbeat("kept", joined), 4).error_code == 0
            assert client.request(build_sync("kept", joined), 5).assignment == b"p0"
            broker.advance(ms=10_001)
            assert describe(client, "kept").group_state == "Empty"


def test_an_assignment_that_is_too_large(broker: LocalBroker, client: RawClient) -> None:
    # The assignment is refused. The group and others in its partition are not affected, and a smaller one is accepted.
    with RawClient(broker.host, broker.port) as neighbour:
        joined_neighbour = join(broker, neighbour, build_join("large"))  # in another group, of the same partition
        neighbour.request(build_sync("large", joined_neighbour), 5)
        group = next(name for name in (f"large-{n}" for n in count()) if same_partition(name, "large"))
        joined = join(broker, client, build_join(group))
        for _ in range(2):
            refused = client.request(build_sync(group, joined, os.urandom(2_000_000)), 5)
            assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert neighbour.request(build_heartbeat("large", joined_neighbour), 4).error_code == 0
        assert client.request(build_heartbeat(group, joined), 4).error_code == 0
        assert client.request(build_sync(group, joined), 5).assignment == b"p0"
        assert describe(client, group).group_state == "Stable"


def same_partition(one: str, other: str) -> bool:
    return key_hash(one) % 50 == key_hash(other) % 50
