"""Classic groups: their descriptions, whose offsets they keep, and which requests may change them."""

from random import Random

import pytest

from ottla.cluster.image import EMPTY
from ottla.coordinators.classic.group import ClassicGroup
from ottla.coordinators.classic.joins import format_reasons
from ottla.coordinators.classic.states import TRANSITIONS, ClassicState
from ottla.coordinators.formats import GROUP_FORMAT, GroupMetadataKey, GroupMetadataValue, MemberMetadata
from ottla.coordinators.machine import StoredRecord, Turn
from ottla.coordinators.outcome_builder import OutcomeBuilder
from ottla.errors import ErrorCode, KafkaError
from tests.unit.coordinators.classic.test_rebalance import ONE_MEMBER, TWO_MEMBERS
from tests.unit.coordinators.classic_scripts import Client, Stage, play


def refusal(stage: Stage, check: str, *identity: object) -> str | None:
    turn = Turn(stage.now, stage.now, EMPTY, stage.config, stage.meters)
    try:
        getattr(stage.group, check)(*identity, *([turn] if identity else []))
    except KafkaError as error:
        return error.code.name
    return None


def test_every_state_but_the_last_has_a_transition() -> None:
    # The table has all states, every transition leads to one of them, and only DEAD has none.
    assert set(TRANSITIONS) == set(ClassicState)
    assert all(set(followers) <= set(ClassicState) for followers in TRANSITIONS.values())
    assert [state for state, followers in TRANSITIONS.items() if not followers] == [ClassicState.DEAD]


def test_a_group_knows_which_topics_its_members_read() -> None:
    # A group reads the topics of all its members. Only consumers name them; if a subscription cannot be decoded, the
    # group may read any topic.
    stage = play(TWO_MEMBERS)
    assert [stage.group.is_subscribed_to(topic) for topic in "tuv"] == [True, False, False]
    stage.play("b joins topics=u | [PreparingRebalance]")
    assert [stage.group.is_subscribed_to(topic) for topic in "tuv"] == [True, True, False]
    connect = play("a joins type=connect version=3 | [PreparingRebalance]")
    assert not connect.group.is_subscribed_to("t")
    unclear = ClassicGroup("group")
    member = MemberMetadata(member_id="m", session_timeout=10_000, subscription=b"?")
    unclear.replay_metadata(GroupMetadataValue(protocol_type="consumer", protocol="own", members=[member]))
    assert unclear.is_subscribed_to("t")


def test_when_offsets_begin_to_expire() -> None:
    # Offsets expire counted from the commit if the group has no protocol, from the time it became empty if it has one,
    # and never while it has members that may need them.
    stage = Stage()
    assert stage.group.find_expiry_start(5) == 5
    assert stage.group.is_simple
    stage.play(ONE_MEMBER)
    assert stage.group.find_expiry_start(5) == 5, "of topics that the members do not read any more"
    stage.play("a joins | [CompletingRebalance]; a: generation 2, leads a")
    assert stage.group.find_expiry_start(5) is None
    stage.play("a leaves | [PreparingRebalance]; stores generation 3 empty; [Empty]; a: NONE")
    assert stage.group.find_expiry_start(5) == stage.now + 10**12
    assert stage.group.protocol_type == "consumer", "an empty group knows what it was for"
    other = play(ONE_MEMBER.replace("a joins                 | a:", "a joins type=connect    | a:"))
    assert other.group.find_expiry_start(5) is None


def test_who_may_commit_in_a_transaction() -> None:
    # Old producers do not name the member, and may commit. A producer that names it must be right. The state of the
    # group does not matter.
    stage = play(ONE_MEMBER)
    member_id = stage.client("a").member_id
    for state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
        assert stage.group.state is state
        assert refusal(stage, "check_transactional_commit", "", None, -1) is None
        assert refusal(stage, "check_transactional_commit", member_id, None, stage.group.generation) is None
        assert refusal(stage, "check_transactional_commit", member_id, None, 0) == "ILLEGAL_GENERATION"
        assert refusal(stage, "check_transactional_commit", "x", None, 1) == "UNKNOWN_MEMBER_ID"
        assert refusal(stage, "check_transactional_commit", "", "i", -1) == "UNKNOWN_MEMBER_ID"
        if state is ClassicState.STABLE:
            stage.play("a joins | [CompletingRebalance]; a: generation 2, leads a")


def test_which_groups_and_offsets_may_be_deleted() -> None:
    # A group without members may be deleted, and offsets also if it has consumers, which say what they read.
    stage = play(ONE_MEMBER)
    assert refusal(stage, "check_delete") == "NON_EMPTY_GROUP"
    assert refusal(stage, "check_delete_offsets") is None
    connect = play(ONE_MEMBER.replace("a joins                 | a:", "a joins type=connect    | a:"))
    assert refusal(connect, "check_delete_offsets") == "NON_EMPTY_GROUP"
    stage.play("a leaves | [PreparingRebalance]; stores generation 2 empty; [Empty]; a: NONE")
    assert refusal(stage, "check_delete") is None
    (tombstone,) = stage.group.tombstones()
    assert tombstone == StoredRecord(GroupMetadataKey(group_id="group"), None)
    assert GROUP_FORMAT.encode(tombstone)[1] is None
    stage.group.replay_metadata(None)
    assert stage.group.state is ClassicState.DEAD


def test_waiting_members_are_answered_when_the_group_is_replaced() -> None:
    # For example, a classic group becomes a consumer group during a rebalance.
    stage = play(TWO_MEMBERS).play("a joins | [PreparingRebalance]")
    outcome = OutcomeBuilder(Turn(stage.now, stage.now, EMPTY, stage.config, stage.meters))
    stage.group.dissolve(outcome, ErrorCode.REBALANCE_IN_PROGRESS)
    replies = outcome.build().replies
    assert [stage.waiting[reply.ticket].name for reply in replies] == ["a"]
    assert [reply.response.error_code for reply in replies] == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_the_length_of_logged_reasons_is_limited() -> None:
    # Clients send a reason when they join or leave. However long it is, the log line stays short.
    assert format_reasons(["done", None, "done"]) == "done; no reason given"
    assert format_reasons(["x" * 10_000]) == "x" * 255
    assert format_reasons(map(str, range(100))) == "0; 1; 2"


def test_a_rebalance_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "ottla.coordinators"):
        play(ONE_MEMBER).play("a leaves | [PreparingRebalance]; stores generation 2 empty; [Empty]; a: NONE")
    told = [record.__dict__["fields"]["reason"] for record in caplog.records]
    assert told == ["a member joined: no reason given", "members left the group: no reason given"]


def test_members_of_old_records() -> None:
    # Version 0 has no rebalance time-out, so the session time-out is used.
    group = ClassicGroup("group")
    member = MemberMetadata(member_id="m", session_timeout=7000, subscription=b"\0\0\0\0\0\0")
    value = GroupMetadataValue(protocol_type="consumer", protocol="range", leader="m", members=[member])
    group.replay_metadata(value)
    assert [each.rebalance_timeout_ms for each in group.members] == [7000]
    assert group.members.leader is group.members.get("m")


@pytest.mark.parametrize("offset_ms", [-1, 0, 1])
def test_requests_at_the_end_of_a_session(offset_ms: int) -> None:
    # A heartbeat just before the end of a session keeps a member, one after it does not. If members leave, join and
    # time out at the same moment, there is one rebalance with exactly the members that are alive.
    stage = play(TWO_MEMBERS)
    stage.pass_ms(5000)
    stage.beats(stage.client("a"))
    stage.pass_ms(5000 + offset_ms)
    stage.beats(stage.client("b"))
    alive = offset_ms < 0
    assert ("b: is alive" in stage.told()) == alive
    stage.joins(stage.client("c"), version=3)
    stage.leaves(stage.client("a"))
    if alive:
        stage.joins(stage.client("b"))
    assert stage.group.state is ClassicState.COMPLETING_REBALANCE
    assert {stage.name_of(member.id) for member in stage.group.members} == ({"b", "c"} if alive else {"c"})
    assert not stage.waiting


DEATHS = {
    "as a new member that waits": "c joins version=3 | [PreparingRebalance]",
    "with an id and no more": "c joins | c: MEMBER_ID_REQUIRED",
    "in a stable group": "",
    "while it waits to join": "b joins topics=u | [PreparingRebalance]",
    "asked to join": "a joins | [PreparingRebalance]",
}


@pytest.mark.parametrize("moment", DEATHS)
def test_a_member_dies_in_each_state(moment: str) -> None:
    # Whenever b or c falls silent, a, which follows the protocol, ends up alone in a stable group.
    stage = play(TWO_MEMBERS)
    if DEATHS[moment]:
        stage.play(DEATHS[moment])
    for _ in range(120):
        stage.pass_ms(3000)
        behave(stage, stage.client("a"))
    assert stage.group.state is ClassicState.STABLE
    assert [stage.name_of(member.id) for member in stage.group.members] == ["a"]


def behave(stage: Stage, client: Client) -> None:
    """Do what a correct client does: send heartbeats, join and sync when it has to, assign if it leads."""
    if client in stage.waiting.values():
        return
    stage.told()
    stage.beats(client)
    (told,) = stage.told()
    if told.endswith("REBALANCE_IN_PROGRESS"):
        stage.joins(client)
    elif not told.endswith("is alive"):
        stage.restarts(client)
        stage.joins(client)
    elif stage.group.state is ClassicState.COMPLETING_REBALANCE:
        names = {each.member_id: each.name for each in stage.clients.values()}
        known = [names[member.id] for member in stage.group.members if member.id in names]
        stage.syncs(client, **{name: f"p{number}" for number, name in enumerate(known)})


def test_a_storm_of_a_thousand_members() -> None:
    # Members come, leave, die and restart in hundreds, before any rebalance is done. When they follow the protocol
    # again, all of them are in one stable generation, and each has its own assignment.
    random = Random(50)
    stage = Stage()
    clients = [stage.client(f"c{number}") for number in range(1000)]
    for number, client in enumerate(clients):
        stage.joins(client, version=3, **({"instance": f"i{number}"} if number % 4 == 0 else {}))
    for _ in range(5):
        stage.pass_ms(2000)
        for client in random.sample(clients, 200):
            random.choice((stage.leaves, stage.restarts, stage.beats))(client)
        for client in random.sample(clients, 200):
            stage.joins(client)
    for _ in range(40):
        stage.pass_ms(3000)
        waiting = {client.name for client in stage.waiting.values()}
        for client in clients:
            if client.name not in waiting:
                behave(stage, client)
    assert stage.group.state is ClassicState.STABLE
    assert {member.id for member in stage.group.members} == {client.member_id for client in clients}
    assert len({member.assignment for member in stage.group.members}) == 1000
