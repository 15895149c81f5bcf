"""Access control on a running broker: rights of every kind, revocation, what the audit log says."""

import asyncio
import logging
import queue
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.config import BrokerConfig, ConfigError
from ottla.coordinators.groups.consumer_protocol import read_assignment
from ottla.errors import ErrorCode
from ottla.handlers import fetch as fetch_handler
from ottla.observability.logs import LineFormatter
from ottla.records import batch
from ottla.security.operations import CLUSTER_NAME, Operation, ResourceType
from ottla.testing import LocalBroker
from ottla.wire import fetch
from ottla.wire.fetch import FetchRequest
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.describe_acls import DescribeAclsRequest
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.list_transactions import ListTransactionsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.schema import encode
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient
from tests.scenarios.access import DENY, PREFIXED, add, connect_as, guarded_broker, rule, take_away
from tests.scenarios.client_calls import append, decode_values, find_topic_id, make_batch
from tests.scenarios.every_request import ask_until_settled

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
READ, WRITE, CREATE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DESCRIBE
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
SESSION_MS = 1_800_000  # as long as a broker allows: no member is to expire


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with guarded_broker(auto_create_topics_enable=True, group_initial_rebalance_delay_ms=0) as running:
        yield running


@pytest.fixture
def topic(broker: LocalBroker, root: RawClient, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name[:100].replace("[", "-").replace("]", "")
    broker.create_topic(name)
    append(root, name, b"one")
    return name


def start_fetch(client: RawClient, topic: str, min_bytes: int, offset: int = 0) -> None:
    wanted = fetch.FetchPartition(0, fetch_offset=offset, max_bytes=1 << 20)
    topics = [fetch.FetchTopic(topic, bytes(16), [wanted])]
    client.send_fetch(FetchRequest(max_wait_ms=2_000, min_bytes=min_bytes, max_bytes=1 << 20, topics=topics), 12)


def test_a_revocation_counts_at_once_on_an_open_connection(root: RawClient, alice: RawClient, topic: str) -> None:
    allowed = rule("alice", READ, TOPIC, topic)
    assert alice.fetch(topic, 0, 0).error_code == DENIED
    add(root, allowed)
    assert decode_values(alice.fetch(topic, 0, 0)) == [b"one"]
    take_away(root, allowed)
    assert alice.fetch(topic, 0, 0).error_code == DENIED


@pytest.mark.parametrize("offset", (0, 1))
def test_a_fetch_that_waits_returns_nothing_after_a_revocation(
    root: RawClient, alice: RawClient, topic: str, offset: int
) -> None:
    """Neither records that came while it waited, nor those that it had read before."""
    allowed = rule("alice", READ, TOPIC, topic)
    add(root, allowed)
    start_fetch(alice, topic, min_bytes=1 << 19 if offset == 0 else 1, offset=offset)
    take_away(root, allowed)
    if offset:
        append(root, topic, b"two")
    (answer,) = alice.read_fetch(12).topics
    assert answer.partitions[0].error_code == DENIED
    assert not answer.partitions[0].records


def test_a_follower_that_waits_gets_nothing_after_a_revocation(
    root: RawClient, alice: RawClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker alone has no followers, so the fetch of one waits here for this test."""
    waiting: queue.SimpleQueue[asyncio.Future[fetch.FetchResponse]] = queue.SimpleQueue()

    def wait_for_test(*_: Any) -> asyncio.Future[fetch.FetchResponse]:
        future: asyncio.Future[fetch.FetchResponse] = asyncio.get_running_loop().create_future()
        waiting.put(future)
        return future

    monkeypatch.setattr(fetch_handler, "handle_follower", wait_for_test)
    allowed = rule("alice", Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)
    request = FetchRequest(replica_id=2, topics=[fetch.FetchTopic(topic, bytes(16), [fetch.FetchPartition(0)])])
    for is_revoked in (False, True):
        add(root, allowed)
        alice.send_fetch(request, 12)
        future = waiting.get(timeout=PATIENCE_S)
        if is_revoked:
            take_away(root, allowed)
        found = fetch.FetchResponse(topics=[fetch.TopicResult(topic, bytes(16), [fetch.PartitionResult(0)])])
        future.get_loop().call_soon_threadsafe(future.set_result, found)
        assert alice.read_fetch(12).topics[0].partitions[0].error_code == (DENIED if is_revoked else 0)


class ClassicMember:
    """A member of a group that uses the classic protocol, in which requests wait for other members."""

    def __init__(self, client: RawClient, group: str, *topics: str) -> None:
        self.client = client
        subscription = ConsumerProtocolSubscription(topics=list(topics))
        metadata = bytes(2) + encode(ConsumerProtocolSubscription, 0, subscription)
        self._join = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        self._join.member_id = ask_until_settled(client, self._join, 9).member_id
        self._sync = SyncGroupRequest(group_id=group, protocol_type="consumer", protocol_name="range")
        self._sync.member_id = self.member_id = self._join.member_id

    def send_join(self) -> None:
        self.client.send_request(self._join, 9)

    def read_join(self) -> Any:
        joined = self.client.read_response(self._join, 9)
        self._sync.generation_id = joined.generation_id
        return joined

    def send_sync(self, **assignments: bytes) -> None:
        assigned = [SyncGroupRequestAssignment(member_id=each, assignment=value) for each, value in assignments.items()]
        self._sync.assignments = assigned
        self.client.send_request(self._sync, 5)

    def read_sync(self) -> Any:
        return self.client.read_response(self._sync, 5)


@pytest.mark.parametrize("waits_in", ["JoinGroup", "SyncGroup"])
def test_a_member_that_waits_learns_nothing_after_a_revocation(
    root: RawClient, alice: RawClient, waits_in: str
) -> None:
    """Neither who is in the group, nor what it is assigned. Root leads the group, so alice waits for root."""
    allowed = rule("alice", READ, GROUP, "waiting")
    add(root, allowed)
    leader, member = ClassicMember(root, "waiting"), ClassicMember(alice, "waiting")
    leader.send_join()
    assert leader.read_join().error_code == 0
    member.send_join()
    root.request(ListGroupsRequest(), 4)  # when it is answered, what alice has sent has arrived too
    if waits_in == "SyncGroup":
        leader.send_join()
        assert (leader.read_join().error_code, member.read_join().error_code) == (0, 0)
        member.send_sync()
        root.request(ListGroupsRequest(), 4)
    take_away(root, allowed)
    if waits_in == "SyncGroup":
        leader.send_sync(**{leader.member_id: b"of root", member.member_id: b"of alice"})
        assert leader.read_sync().assignment == b"of root"
        answer = member.read_sync()
        assert not answer.assignment
    else:
        leader.send_join()
        assert len(leader.read_join().members) == 2
        answer = member.read_join()
        assert not answer.leader
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    leave = [MemberIdentity(member_id=each.member_id) for each in (leader, member)]
    assert root.request(LeaveGroupRequest(group_id="waiting", members=leave), 5).error_code == 0


def fetch_in_session(client: RawClient, session_id: int, epoch: int, *topics: str) -> fetch.FetchResponse:
    asked = [fetch.FetchTopic(topic, bytes(16), [fetch.FetchPartition(0, max_bytes=1 << 20)]) for topic in topics]
    request = FetchRequest(max_bytes=1 << 20, session_id=session_id, session_epoch=epoch, topics=asked)
    return client.fetch_whole(request, 12)


def test_a_revocation_counts_in_a_session(root: RawClient, alice: RawClient, topic: str) -> None:
    """Although the client names no topic any more. When the right is back, the records are."""
    allowed = rule("alice", READ, TOPIC, topic)
    add(root, allowed)
    begun = fetch_in_session(alice, 0, 0, topic)
    assert begun.session_id
    take_away(root, allowed)
    (answer,) = fetch_in_session(alice, begun.session_id, 1).topics
    assert (answer.partitions[0].error_code, bool(answer.partitions[0].records)) == (DENIED, False)
    add(root, allowed)
    (answer,) = fetch_in_session(alice, begun.session_id, 2).topics
    assert answer.partitions[0].records


def test_a_session_is_its_owners(broker: LocalBroker, root: RawClient, alice: RawClient, topic: str) -> None:
    """For anybody else it does not exist, whatever its epoch is: its topics are not for others to see. Nor can they end
    it."""
    session_id = fetch_in_session(root, 0, 0, topic).session_id
    for epoch in (1, 2, -1, 0):
        answer = fetch_in_session(alice, session_id, epoch)
        assert answer.topics == []
        assert answer.error_code == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND if epoch > 0 else 0)
    assert fetch_in_session(root, session_id, 1).error_code == 0


def test_denial_wins_over_permission_and_prefixes_count(root: RawClient, alice: RawClient, topic: str) -> None:
    add(root, rule("alice", Operation.ALL, TOPIC, topic[:6], pattern_type=PREFIXED))
    assert decode_values(alice.fetch(topic, 0, 0)) == [b"one"]
    denial = rule("*", READ, TOPIC, topic, permission=DENY)
    add(root, denial)
    assert alice.fetch(topic, 0, 0).error_code == DENIED
    result = alice.produce(topic, 0, make_batch(b"two"))
    assert result is not None
    assert result.error_code == 0  # only READ is denied
    take_away(root, denial)
    assert decode_values(alice.fetch(topic, 0, 0)) == [b"one", b"two"]


def test_hosts_count(root: RawClient, alice: RawClient, topic: str) -> None:
    add(root, rule("alice", READ, TOPIC, topic, host="127.0.0.99"))
    assert alice.fetch(topic, 0, 0).error_code == DENIED
    add(root, rule("alice", READ, TOPIC, topic, host="127.0.0.2"))
    assert alice.fetch(topic, 0, 0).error_code == 0


def ask_for(client: RawClient, name: str) -> Any:
    return client.request(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12).topics[0]


def test_a_topic_is_created_on_demand_only_for_who_may_create_it(root: RawClient, alice: RawClient) -> None:
    """CREATE on the topic or on the cluster, and DESCRIBE to see it."""
    assert ask_for(alice, "on-demand").error_code == DENIED
    add(root, rule("alice", DESCRIBE, TOPIC, "on-demand"))
    assert ask_for(alice, "on-demand").error_code == DENIED
    assert "on-demand" not in [each.name for each in root.request(MetadataRequest(topics=None), 12).topics]
    add(root, rule("alice", CREATE, TOPIC, "on-demand"))
    assert ask_for(alice, "on-demand").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    while ask_for(alice, "on-demand").error_code:
        pass


def test_who_may_create_a_topic_but_not_see_it_creates_none_by_asking(root: RawClient, alice: RawClient) -> None:
    add(root, rule("alice", CREATE, TOPIC, "unseen-demand"))
    assert ask_for(alice, "unseen-demand").error_code == DENIED
    while ask_for(root, "later-demand").error_code:  # topics are created in the order in which they were asked for
        pass
    assert "unseen-demand" not in [each.name for each in root.request(MetadataRequest(topics=None), 12).topics]


@pytest.mark.parametrize("name", [None, "", "other"])
def test_an_id_shows_nothing_of_its_topic(root: RawClient, alice: RawClient, topic: str, name: str | None) -> None:
    # A name beside the id counts for nothing: Kafka's admin client sends an empty one.
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name, topic_id=find_topic_id(root, topic))])
    (answer,) = alice.request(asked, 12).topics
    assert (answer.error_code, answer.name, answer.partitions) == (DENIED, None, [])
    add(root, rule("alice", DESCRIBE, TOPIC, topic))
    (answer,) = alice.request(asked, 12).topics
    assert (answer.error_code, answer.name, len(answer.partitions)) == (0, topic, 1)


def test_a_batch_says_whether_it_is_transactional(root: RawClient, alice: RawClient, topic: str) -> None:
    """Not the transactional id of the request (CVE-2018-17196)."""
    add(root, rule("alice", WRITE, TOPIC, topic))
    transactional = bytearray(make_batch(b"two"))
    transactional[22] |= batch.TRANSACTIONAL
    for transactional_id in (None, "", "mine"):
        result = alice.produce(topic, 0, transactional, transactional_id=transactional_id)
        assert result is not None
        assert result.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert decode_values(root.fetch(topic, 0, 0)) == [b"one"]


def test_producer_ids_are_for_those_who_may_write_somewhere(root: RawClient, alice: RawClient) -> None:
    """Or have IDEMPOTENT_WRITE on the cluster (KIP-679)."""
    request = InitProducerIdRequest(transactional_id=None)
    assert alice.request(request, 4).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    anywhere = rule("alice", WRITE, TOPIC, "some", pattern_type=PREFIXED)
    add(root, anywhere)
    assert alice.request(request, 4).error_code == 0
    take_away(root, anywhere)
    add(root, rule("alice", Operation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME))
    assert alice.request(request, 4).error_code == 0


def test_a_transactional_id_is_for_those_who_may_write_with_it(root: RawClient, alice: RawClient) -> None:
    """Whoever gets its producer id fences the producer that had it. Who may not describe it does not see it."""
    request = InitProducerIdRequest(transactional_id="of alice", transaction_timeout_ms=60_000)
    refused = alice.request(request, 4)
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert (refused.error_code, refused.producer_id) == (code, -1)
    ask_until_settled(root, FindCoordinatorRequest(coordinator_keys=["of alice"], key_type=1), 4)
    allowed = rule("alice", WRITE, TRANSACTIONAL_ID, "of alice")
    add(root, allowed)
    assert ask_until_settled(alice, request, 4).error_code == 0

    def list_ids() -> list[str]:
        return [each.transactional_id for each in alice.request(ListTransactionsRequest(), 0).transaction_states]

    assert list_ids() == ["of alice"]
    take_away(root, allowed)
    assert list_ids() == []


def test_internal_topics_are_not_for_clients(root: RawClient, alice: RawClient) -> None:
    """A right to write to everything is none to write to them."""
    find = FindCoordinatorRequest(coordinator_keys=["any"], key_type=0)
    ask_until_settled(root, find, 4)
    add(root, rule("alice", WRITE, TOPIC, "other"))
    result = alice.produce("__consumer_offsets", 0, make_batch(b"x"))
    assert result is not None
    assert result.error_code == DENIED
    add(root, rule("alice", WRITE, TOPIC, "*"))
    result = alice.produce("__consumer_offsets", 0, make_batch(b"x"))
    assert result is not None
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def heartbeat(client: RawClient, group: str, **fields: Any) -> Any:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m" * 22,
        member_epoch=0,
        rebalance_timeout_ms=300_000,
        topic_partitions=[],
        **fields,
    )
    return ask_until_settled(client, request, 1)


def test_a_pattern_matches_only_what_the_client_may_see(broker: LocalBroker, root: RawClient, alice: RawClient) -> None:
    """A subscription by regular expression is no way to other topics (KIP-848), and a revocation counts."""
    for name in ("pattern-mine", "pattern-other"):
        broker.create_topic(name)
    mine = rule("alice", READ, TOPIC, "pattern-mine")
    add(root, mine, rule("alice", READ, GROUP, "patterns"))
    answer = heartbeat(alice, "patterns", subscribed_topic_regex="pattern-.*")
    assert answer.error_code == 0
    assigned = [each.topic_id for each in answer.assignment.topic_partitions]
    assert assigned == [find_topic_id(root, "pattern-mine")]
    refused = heartbeat(alice, "patterns", subscribed_topic_names=["pattern-mine", "pattern-other"])
    assert refused.error_code == DENIED


def test_a_classic_member_of_a_consumer_group_gets_only_what_it_may_see(
    broker: LocalBroker, root: RawClient, alice: RawClient
) -> None:
    """There the broker assigns partitions: otherwise an assignment would tell which topics exist."""
    for name in ("classic-mine", "classic-other", "classic-root"):
        broker.create_topic(name)
    add(root, rule("alice", READ, TOPIC, "classic-mine"), rule("alice", READ, GROUP, "mixed"))
    assert heartbeat(root, "mixed", subscribed_topic_names=["classic-root"]).error_code == 0
    member = ClassicMember(alice, "mixed", "classic-mine", "classic-other", "classic-absent")
    assigned: list[str] = []
    while not assigned:  # the broker may take a moment to assign
        member.send_join()
        assert member.read_join().error_code == 0
        member.send_sync()
        synced = member.read_sync()
        if not synced.error_code:
            assigned = [each.topic for each in read_assignment(bytes(synced.assignment)).assigned_partitions]
    assert assigned == ["classic-mine"]


def test_groups_are_listed_for_who_may_describe_them(root: RawClient, alice: RawClient, topic: str) -> None:
    from tests.scenarios.test_access_walk import commit  # the same group, without members

    commit(root, "seen", topic)
    commit(root, "unseen", topic)
    assert alice.request(ListGroupsRequest(), 4).groups == []
    add(root, rule("alice", DESCRIBE, GROUP, "seen"))
    assert [group.group_id for group in alice.request(ListGroupsRequest(), 4).groups] == ["seen"]
    add(root, rule("alice", DESCRIBE, CLUSTER, CLUSTER_NAME))
    assert {"seen", "unseen"} <= {group.group_id for group in alice.request(ListGroupsRequest(), 4).groups}


def test_what_a_client_may_do_is_reported_as_bits(root: RawClient, alice: RawClient, topic: str) -> None:
    add(root, rule("alice", WRITE, TOPIC, topic))
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], include_topic_authorized_operations=True)
    assert alice.request(asked, 12).topics[0].topic_authorized_operations == 1 << WRITE | 1 << DESCRIBE
    cluster = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert alice.request(cluster, 1).cluster_authorized_operations == 0
    add(root, rule("alice", Operation.ALTER, CLUSTER, CLUSTER_NAME))
    operations = alice.request(cluster, 1).cluster_authorized_operations
    assert operations == 1 << Operation.ALTER | 1 << DESCRIBE


def test_who_may_create_a_topic_may_not_see_its_settings(root: RawClient, alice: RawClient) -> None:
    add(root, rule("alice", CREATE, TOPIC, "made-by-alice"))
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("made-by-alice", "refused")
        ],
        timeout_ms=20_000,
    )
    made, refused = alice.request(request, 7).topics
    assert (made.error_code, made.topic_config_error_code, made.num_partitions) == (0, DENIED, -1)
    assert (refused.error_code, refused.error_message) == (DENIED, "Authorization failed.")


def test_acls_are_listed_with_every_filter(root: RawClient) -> None:
    first = rule("alice", READ, TOPIC, "a", pattern_type=PREFIXED)
    second = rule("bob", READ, TOPIC, "*")
    add(root, first, second, first)
    matching = DescribeAclsRequest(
        resource_type_filter=TOPIC,
        resource_name_filter="abc",
        pattern_type_filter=2,
        operation=1,
        permission_type=1,
    )
    found = root.request(matching, 3)
    assert sorted(each.resource_name for each in found.resources) == ["*", "a"]
    unknown = DescribeAclsRequest(resource_type_filter=99, operation=1, permission_type=1)
    assert root.request(unknown, 3).error_code == ErrorCode.INVALID_REQUEST


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.setFormatter(LineFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def audit() -> Iterator[list[str]]:
    logger, lines = logging.getLogger("kafka.authorizer.logger"), Lines()
    level = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    yield lines.lines
    logger.setLevel(level)
    logger.removeHandler(lines)


def test_a_denied_action_is_one_line_that_no_client_can_forge(
    broker: LocalBroker, root: RawClient, audit: list[str]
) -> None:
    """Names and client ids with line ends and fields of their own stay inside their quotes."""
    forged = 'x"\n2026-01-01 00:00:00.000 INFO  kafka.authorizer.logger: allowed principal=User:root'
    with connect_as("nobody", broker, client_id=forged) as intruder:
        intruder.fetch(forged, 0, 0)
    (line,) = audit
    assert "\n" not in line
    assert " INFO  kafka.authorizer.logger: denied principal=User:nobody operation=READ host=127.0.0.4 " in line
    assert line.count(" request=") == 1
    assert "rule=DefaultDeny" in line
    assert '\\"' in line
    audit.clear()
    with connect_as("root", broker) as client:
        client.fetch("missing", 0, 0)
    assert audit == []  # what is allowed is logged at DEBUG


def test_an_administrative_action_is_logged(broker: LocalBroker, root: RawClient, audit: list[str]) -> None:
    add(root, rule("alice", READ, TOPIC, "a topic"))
    (line,) = audit
    assert "done principal=User:root host=127.0.0.1 request=CreateAcls" in line
    assert "a topic" in line


def test_an_unknown_authorizer_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^authorizer.class.name: 'com.example.Mine' is not one of [^\n]*$"):
        BrokerConfig.of({"authorizer.class.name": "com.example.Mine"})
    with pytest.raises(ConfigError, match=r"^super.users: 'root' is not a principal like User:alice"):
        BrokerConfig.of({"super.users": "root"})


def test_acls_survive_a_restart() -> None:
    with guarded_broker() as broker:
        broker.create_topic("kept")
        with connect_as("root", broker) as root:
            add(root, rule("alice", READ, TOPIC, "kept"))
        broker.restart()
        with connect_as("alice", broker) as alice:
            assert alice.fetch("kept", 0, 0).error_code == 0
        with connect_as("bob", broker) as bob:
            assert bob.fetch("kept", 0, 0).error_code == DENIED


def test_everybody_may_do_everything_where_no_acl_is_if_configured() -> None:
    with guarded_broker(allow_everyone_if_no_acl_found=True) as broker:
        broker.create_topic("open")
        with connect_as("root", broker) as root, connect_as("alice", broker) as alice:
            assert alice.fetch("open", 0, 0).error_code == 0
            add(root, rule("bob", READ, TOPIC, "open"))
            assert alice.fetch("open", 0, 0).error_code == DENIED
