"""Classic and consumer protocol in one group, and the conversion between them. Scripts have the expected events
beside."""

import pytest

from ottla.coordinators.classic.group import ClassicGroup
from ottla.coordinators.consumer.group import ConsumerGroup
from ottla.coordinators.groups.downgrade import Downgrade
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.schema import encode
from tests.unit.coordinators.consumer_scripts import Stage, play

CLASSIC_PAIR = """
    a enters topics=t       | a: MEMBER_ID_REQUIRED
    a enters                | [classic PreparingRebalance]
    b enters topics=t       | b: MEMBER_ID_REQUIRED
    b enters                |
    1 ms pass               | [classic CompletingRebalance]; a: generation 1, leads 2; b: generation 1
    b syncs                 |
    a syncs a=t0,t1 b=t2,t3 | [classic Stable]; a: reads t0 t1; b: reads t2 t3
"""

UPGRADED = (
    CLASSIC_PAIR
    + """
    c joins topics=t        | [Reconciling]; c: epoch 2, reads nothing
    a pulses                | a: REBALANCE_IN_PROGRESS
    a enters owns           | a: generation 2
    a syncs                 | a: reads t0 t1
    a pulses                | a: is alive
    c beats                 | c: epoch 2
    b pulses                | b: REBALANCE_IN_PROGRESS
    b enters owns           | b: generation 1
    b syncs                 | b: reads t2
    b pulses                | b: REBALANCE_IN_PROGRESS
    b enters owns           | b: generation 2
    c beats                 | [Stable]; c: epoch 2, reads t3
    b syncs                 | b: reads t2
    b pulses                | b: is alive
"""
)


def test_a_classic_group_is_converted_while_it_reads() -> None:
    # A member that loses partitions joins twice: to learn it, and to say that it gave them up. Others do not stop
    # reading.
    stage = play(UPGRADED)
    assert stage.group.state.classic_members == 2
    assert [member.member_type for member in stage.group.describe(stage.turn()).members] == [0, 0, 1]


def test_an_eager_member_gives_up_everything_and_gets_its_share() -> None:
    # The member owns nothing when it joins, so nobody has to wait for it.
    play("""
        a enters topics=t       | a: MEMBER_ID_REQUIRED
        a enters                | [classic PreparingRebalance]
        1 ms pass               | [classic CompletingRebalance]; a: generation 1, leads 1
        a syncs a=t0,t1,t2,t3   | [classic Stable]; a: reads t0 t1 t2 t3
        c joins topics=t        | [Reconciling]; c: epoch 2, reads nothing
        a pulses                | a: REBALANCE_IN_PROGRESS
        a enters                | a: generation 2
        a syncs                 | a: reads t0 t1
        c beats                 | [Stable]; c: epoch 2, reads t2 t3
    """)


def test_a_group_is_restarted_member_by_member() -> None:
    # When the last classic member is gone, nothing of the old protocol is left, and every partition has a reader.
    stage = play(
        CLASSIC_PAIR
        + """
        c joins topics=t        | [Reconciling]; c: epoch 2, reads nothing
        a exits                 | [Assigning]; a: NONE
        d joins topics=t        | [Reconciling]; d: epoch 4, reads t1
        b exits                 | [Assigning]; b: NONE
        c beats                 | [Reconciling]; c: epoch 5, reads t0 t3
        d beats                 | [Stable]; d: epoch 5, reads t1 t2
        """
    )
    assert stage.group.state.classic_members == 0


def test_a_group_is_classic_again_when_its_last_new_member_leaves() -> None:
    # The classic members are asked to join, and one of them leads again.
    play(
        UPGRADED
        + """
        c leaves                | [classic Stable]; c: epoch -1; [classic PreparingRebalance]
        a pulses                | a: REBALANCE_IN_PROGRESS
        a enters                |
        b enters                | [classic CompletingRebalance]; a: generation 3, leads 2; b: generation 3
        a syncs a=t0,t1 b=t2,t3 | [classic Stable]; a: reads t0 t1
        b syncs                 | b: reads t2 t3
        """
    )


def test_a_group_is_classic_again_when_its_last_new_member_dies() -> None:
    # Sessions of members of both protocols run side by side, each with its own time-out.
    alive = """
        9000 ms pass            |
        a pulses                | a: is alive
        b pulses                | b: is alive
    """
    play(UPGRADED + 4 * alive + "9000 ms pass            | [classic Stable]; [classic PreparingRebalance]")


def test_a_static_member_keeps_its_place_when_it_changes_the_protocol() -> None:
    # The conversion to the new protocol needs no rebalance. On the way back the member turns the group into a classic
    # one.
    play("""
        a enters topics=t instance=i | [classic PreparingRebalance]
        1 ms pass               | [classic CompletingRebalance]; a: generation 1, leads 1
        a syncs a=t0,t1,t2,t3   | [classic Stable]; a: reads t0 t1 t2 t3
        a joins id=a2           | [Stable]; a: epoch 1, reads t0 t1 t2 t3
        a leaves for=now        | [Reconciling]; a: epoch -2
        a enters id=none        | [classic Stable]; a: generation 1
        a syncs                 | a: reads t0 t1 t2 t3
    """)


def test_a_group_converted_back_half_way_lets_all_members_rejoin() -> None:
    # Another member has not yet given up what the static one is to read. No partition may have two readers.
    play("""
        a enters topics=t instance=i | [classic PreparingRebalance]
        1 ms pass               | [classic CompletingRebalance]; a: generation 1, leads 1
        a syncs a=t0,t1,t2,t3   | [classic Stable]; a: reads t0 t1 t2 t3
        c joins topics=t instance=k | [Reconciling]; c: epoch 2, reads nothing
        c leaves for=now        | c: epoch -2
        c enters id=none        | [classic Stable]; c: generation 2; [classic PreparingRebalance]
        c syncs                 | c: REBALANCE_IN_PROGRESS
    """)


def test_a_group_converted_back_may_rebalance_before_its_errand() -> None:
    # The errand waits for the log, and a member may join meanwhile: then there is nothing left to do.
    stage = play("""
        c joins topics=t    | [Stable]; c: epoch 2, reads t0 t1 t2 t3
        a enters topics=t   | a: MEMBER_ID_REQUIRED
        a enters            | [Reconciling]; a: generation 3
        c leaves            | [classic Stable]; c: epoch -1; [classic PreparingRebalance]
    """)
    stage.run(None, lambda turn: stage.groups.begin_classic_group(Downgrade("group", needs_rebalance=True), turn))
    assert stage.groups.groups["group"].state_name == "PreparingRebalance"


@pytest.mark.parametrize(
    ("policy", "upgrade", "downgrade"),
    [("disabled", False, False), ("upgrade", True, False), ("downgrade", False, True), ("BIDIRECTIONAL", True, True)],
)
def test_the_migration_policy_of_the_broker(policy: str, upgrade: bool, downgrade: bool) -> None:
    # A group that may not be converted stays as it is, and the new member gets GROUP_ID_NOT_FOUND.
    stage = play(CLASSIC_PAIR, group_consumer_migration_policy=policy)
    if upgrade:
        stage.play("c joins topics=t | [Reconciling]; c: epoch 2, reads nothing")
    else:
        stage.play("c joins topics=t | c: GROUP_ID_NOT_FOUND")
    script = "c joins topics=t | [Stable]; c: epoch 2, reads t0 t1 t2 t3"
    stage = play(script, group_consumer_migration_policy=policy)
    if policy == "disabled":
        stage.play("a enters topics=t | a: INCONSISTENT_GROUP_PROTOCOL")
        return
    stage.play("""
        a enters topics=t | a: MEMBER_ID_REQUIRED
        a enters          | [Reconciling]; a: generation 3
    """)
    stage.play(
        "c leaves | [classic Stable]; c: epoch -1; [classic PreparingRebalance]"
        if downgrade
        else "c leaves | [Assigning]; c: epoch -1"
    )


ALONE = """
    a enters topics=t {0}   | a: MEMBER_ID_REQUIRED
    a enters {0}            | [classic PreparingRebalance]
    1 ms pass               | [classic CompletingRebalance]; a: generation 1, leads 1
"""


def test_groups_that_cannot_be_converted() -> None:
    # The members are no consumers, or an assignment cannot be decoded or has data that only its assignor knows.
    play(ALONE.format("type=connect") + "c joins topics=t | c: GROUP_ID_NOT_FOUND")
    stage = play(ALONE.format("") + "a syncs a=t0 | [classic Stable]; a: reads t0")
    group = stage.groups.groups["group"]
    assert isinstance(group, ClassicGroup)
    (member,) = group.members
    whole = member.assignment
    for assignment in (whole[:-6], whole[:-4] + b"\0\0\0\1x"):
        member.assignment = assignment
        stage.play("c joins topics=t | c: GROUP_ID_NOT_FOUND")
    member.assignment = whole
    stage.play("c joins topics=t | [Reconciling]; c: epoch 2, reads t2 t3")


def test_a_group_of_librdkafka_is_converted_although_assignments_have_data() -> None:
    # librdkafka's leader returns to each member its own data, so the member loses nothing that it does not know.
    stage = play(ALONE.format("") + "a syncs a=t0 | [classic Stable]; a: reads t0")
    group = stage.groups.groups["group"]
    assert isinstance(group, ClassicGroup)
    (member,) = group.members
    said = encode(ConsumerProtocolSubscription, 1, ConsumerProtocolSubscription(topics=["t"], user_data=b"x"))
    member.protocols = (("range", b"\0\1" + said),)
    member.assignment = member.assignment[:-4] + b"\0\0\0\1x"
    stage.play("c joins topics=t | [Reconciling]; c: epoch 2, reads t2 t3")


def test_a_group_is_converted_during_a_rebalance() -> None:
    # Waiting members are told to join again, and do so in the new group.
    play(
        CLASSIC_PAIR
        + """
        d enters topics=t       | d: MEMBER_ID_REQUIRED
        d enters                | [classic PreparingRebalance]
        c joins topics=t        | [Reconciling]; c: epoch 2, reads nothing; d: REBALANCE_IN_PROGRESS
        d enters                | d: generation 2
        """
    )


def test_an_empty_group_may_become_anything() -> None:
    # Nothing is converted: one group is deleted, and the other begins.
    stage = play("""
        a joins topics=t        | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        a leaves                | [Empty]; a: epoch -1
        b enters topics=t       | b: MEMBER_ID_REQUIRED
        b enters                | [classic PreparingRebalance]
        1 ms pass               | [classic CompletingRebalance]; b: generation 1, leads 1
        b exits                 | [Empty]; b: NONE
        a joins topics=t        | [Stable]; a: epoch 2, reads t0 t1 t2 t3
    """)
    assert stage.copy_from_log().groups["group"].kind == "consumer"


def test_classic_members_must_join_and_sync_in_time() -> None:
    # A member that was asked to join and only sends heartbeats is removed after its rebalance time-out, and so is one
    # that never syncs.
    play(
        """
        c joins topics=t        | [Stable]; c: epoch 2, reads t0 t1 t2 t3
        a enters topics=t timeout=15000 | a: MEMBER_ID_REQUIRED
        a enters                | [Reconciling]; a: generation 3
        9000 ms pass            |
        a pulses                | a: is alive
        6000 ms pass            | [Assigning]
        a pulses                | a: UNKNOWN_MEMBER_ID
        a enters id=none        | a: MEMBER_ID_REQUIRED
        a enters                | [Reconciling]; a: generation 5
        a syncs                 | a: reads nothing
        c beats                 | c: epoch 2, reads t0 t1
        c beats                 | c: epoch 5
        a pulses                | a: REBALANCE_IN_PROGRESS
        9000 ms pass            |
        a pulses                | a: REBALANCE_IN_PROGRESS
        6000 ms pass            | [Assigning]
        c beats                 | [Stable]; c: epoch 6, reads t0 t1 t2 t3
        """
    )


def test_classic_members_that_join_and_sync_in_time_stay() -> None:
    # However long ago they were asked to.
    alive = (
        4
        * """
        9000 ms pass            |
        a pulses                | a: is alive
        c beats                 | c: epoch 3
    """
    )
    play(
        """
        c joins topics=t        | [Stable]; c: epoch 2, reads t0 t1 t2 t3
        a enters topics=t timeout=15000 | a: MEMBER_ID_REQUIRED
        a enters                | [Reconciling]; a: generation 3
        a syncs                 | a: reads nothing
        c beats                 | c: epoch 2, reads t0 t1
        c beats                 | c: epoch 3
        a pulses                | a: REBALANCE_IN_PROGRESS
        a enters                | [Stable]; a: generation 3
        a syncs                 | a: reads t2 t3
        """
        + alive
    )


def test_classic_members_that_fall_silent_after_the_conversion_are_removed() -> None:
    # Their sessions continue with the time-outs that they had.
    play(
        CLASSIC_PAIR
        + """
        c joins topics=t        | [Reconciling]; c: epoch 2, reads nothing
        9000 ms pass            |
        a pulses                | a: REBALANCE_IN_PROGRESS
        1000 ms pass            | [Assigning]
        b pulses                | b: UNKNOWN_MEMBER_ID
        c beats                 | [Reconciling]; c: epoch 3, reads t2 t3
        """
    )


def test_classic_members_rejoin_only_when_there_are_new_targets() -> None:
    # The group's epoch is ahead of its targets until the interval has passed.
    play(
        """
        c joins topics=t        | [Stable]; c: epoch 2, reads t0 t1 t2 t3
        a enters topics=t       | a: MEMBER_ID_REQUIRED
        a enters                | [Assigning]; a: generation 2
        a syncs                 | a: reads nothing
        a pulses                | a: is alive
        1000 ms pass            |
        c beats                 | [Reconciling]; c: epoch 2, reads t0 t1
        a pulses                | a: REBALANCE_IN_PROGRESS
        """,
        group_consumer_assignment_interval_ms=1000,
    )


def test_a_group_converted_back_continues_from_its_epoch() -> None:
    # This also holds if the targets are older: generations never go back.
    stage = play(
        UPGRADED
        + """
        d joins topics=t        | [Reconciling]; d: epoch 3, reads nothing
        d leaves                | [Assigning]; d: epoch -1
        c leaves                | [classic Stable]; c: epoch -1; [classic PreparingRebalance]
        """
    )
    group = stage.groups.groups["group"]
    assert isinstance(group, ClassicGroup) and group.generation == 4


def test_classic_members_are_held_to_their_generation_and_protocol() -> None:
    stage = play(UPGRADED)
    a = stage.client("a")
    a.epoch = 1
    stage.play("""
        a pulses                | a: ILLEGAL_GENERATION
        a syncs                 | a: ILLEGAL_GENERATION
        a commits epoch=1 places=t2 | a: ILLEGAL_GENERATION
        a commits epoch=1 places=t0 | a: commits
    """)
    a.epoch, a.protocol_name = 2, "sticky"
    stage.play("""
        a syncs                 | a: INCONSISTENT_GROUP_PROTOCOL
        d enters topics=t protocols=sticky | d: INCONSISTENT_GROUP_PROTOCOL
        d enters topics=t type=connect | d: INCONSISTENT_GROUP_PROTOCOL
    """)
    c = stage.client("c")
    stage.play("c pulses            | c: UNKNOWN_MEMBER_ID")
    assert c.member_id in stage.group.state.members


def test_a_coordinator_that_loads_the_log_continues_alike() -> None:
    # A coordinator that loads the log at any of these points continues as the first one would have.
    story = UPGRADED + "c leaves | [classic Stable]; c: epoch -1; [classic PreparingRebalance]"
    stage = Stage()
    for line in story.replace(CLASSIC_PAIR, "").strip().splitlines():
        if not stage.log:
            stage.play(CLASSIC_PAIR)
        stage.play(line)
        live, copy = stage.groups.groups["group"], stage.copy_from_log().groups["group"]
        assert copy.kind == live.kind
        if isinstance(live, ConsumerGroup):
            assert isinstance(copy, ConsumerGroup) and copy.state == live.state
