"""Static members (KIP-345): an instance id keeps a member's place while it restarts."""

from tests.unit.coordinators.classic_scripts import play

TWO_STATIC = """
    a joins instance=i1     | [PreparingRebalance]
    b joins instance=i2     |
    6000 ms pass            | [CompletingRebalance]; a: generation 1, leads a b; b: generation 1
    b syncs                 |
    a syncs a=p0 b=p1       | stores generation 1 a=p0 b=p1; [Stable]; a: gets p0; b: gets p1
"""
"""Static members need no second request for their id: an instance id that returns cannot leave dead members behind."""


def test_a_restart_without_a_rebalance() -> None:
    # The member gets its old assignment under a new member id, which is stored. Nobody else notices.
    play(TWO_STATIC).play("""
        b restarts              |
        b joins                 | stores generation 1 a=p0 b=p1; b: generation 1
        b syncs                 | b: gets p1
        b beats                 | b: is alive
        a beats                 | a: is alive
        b commits               | b: commits
        reload                  | [Stable]
        b beats                 | b: is alive
        b syncs                 | b: gets p1
    """)


def test_a_leader_restarts_without_a_rebalance() -> None:
    # The member still leads. It is told the members, and that there is nothing to assign.
    play(TWO_STATIC).play("""
        a restarts              |
        a joins                 | stores generation 1 b=p1 a=p0; a: generation 1, leads b a, assigns nothing
        a syncs                 | a: gets p0
        a joins                 | [PreparingRebalance]
        b joins                 | [CompletingRebalance]; b: generation 2; a: generation 2, leads b a
    """)


def test_an_old_leader_restarts_without_a_rebalance() -> None:
    # Before version 9 a leader cannot be told to skip the assignment, so it is not told that it leads.
    play(TWO_STATIC).play("""
        a restarts              |
        a joins version=8       | stores generation 1 b=p1 a=p0; a: generation 1
        a syncs                 | a: gets p0
    """)


def test_a_restart_that_changes_the_protocol() -> None:
    # The member no longer supports the chosen protocol, which needs a rebalance.
    play("""
        a joins instance=i1 protocols=range,sticky | [PreparingRebalance]
        3000 ms pass                               | [CompletingRebalance]; a: generation 1, leads a
        a syncs a=p0                               | stores generation 1 a=p0; [Stable]; a: gets p0
        a restarts                                 |
        a joins protocols=sticky,range             | [CompletingRebalance]; a: generation 2 with sticky, leads a
    """)


def test_two_clients_with_one_instance_id() -> None:
    # Two clients have one instance id. The later one wins, and every request of the earlier one is fenced.
    play(TWO_STATIC).play("""
        c joins instance=i2     | stores generation 1 a=p0 c=p1; c: generation 1
        c syncs                 | c: gets p1
        b beats                 | b: FENCED_INSTANCE_ID
        b syncs                 | b: FENCED_INSTANCE_ID
        b commits               | b: FENCED_INSTANCE_ID
        b joins                 | b: FENCED_INSTANCE_ID
        b leaves                | b: FENCED_INSTANCE_ID
        c beats                 | c: is alive
        c commits               | c: commits
    """)


def test_two_clients_with_one_instance_id_while_members_join() -> None:
    # Two clients have one instance id. The one that waits is fenced at once, and the rebalance continues with the
    # other.
    play(TWO_STATIC).play("""
        b joins topics=other    | [PreparingRebalance]
        c joins instance=i2     | b: FENCED_INSTANCE_ID
        a joins                 | [CompletingRebalance]; a: generation 2, leads a c; c: generation 2
        a syncs a=p0 c=p1       | stores generation 2 a=p0 c=p1; [Stable]; a: gets p0
        c syncs                 | c: gets p1
    """)


def test_two_clients_with_one_instance_id_while_members_sync() -> None:
    # The leader's assignment is for the member that was fenced, so everybody joins again.
    play(TWO_STATIC).play("""
        a joins                 | [PreparingRebalance]
        b joins                 | [CompletingRebalance]; a: generation 2, leads a b; b: generation 2
        b syncs                 |
        c joins instance=i2     | [PreparingRebalance]; b: FENCED_INSTANCE_ID
        a syncs a=p0 b=p1       | a: REBALANCE_IN_PROGRESS
        a joins                 | [CompletingRebalance]; a: generation 3, leads a c; c: generation 3
    """)


def test_two_clients_with_one_instance_id_in_a_new_group() -> None:
    # The initial wait continues for the client that takes the place.
    play("""
        a joins instance=i1     | [PreparingRebalance]
        b joins instance=i1     | a: FENCED_INSTANCE_ID
        3000 ms pass            | [CompletingRebalance]; b: generation 1, leads b
    """)


def test_an_unknown_instance_id() -> None:
    # The member id is correct, and the instance id is not.
    play(TWO_STATIC).play("""
        b joins instance=i3     | b: UNKNOWN_MEMBER_ID
        b beats                 | b: UNKNOWN_MEMBER_ID
        b commits               | b: UNKNOWN_MEMBER_ID
    """)


def test_a_rebalance_does_not_wait_for_ever_for_a_static_member() -> None:
    # A static member that does not join keeps its place until its session ends, because it may be restarting.
    play(TWO_STATIC.replace("i2", "i2 session=300000")).play("""
        a joins                 | [PreparingRebalance]
        60000 ms pass           | [CompletingRebalance]; a: generation 2, leads a b
        a syncs a=p0 b=p1       | stores generation 2 a=p0 b=p1; [Stable]; a: gets p0
        b beats                 | b: ILLEGAL_GENERATION
        b joins                 | b: generation 2
        b syncs                 | b: gets p1
    """)


def test_a_static_member_that_stays_away() -> None:
    # After its session ends, the others share its partitions.
    play(TWO_STATIC).play("""
        9000 ms pass            |
        a beats                 | a: is alive
        1000 ms pass            | [PreparingRebalance]
        a joins                 | [CompletingRebalance]; a: generation 2, leads a
        b beats                 | b: UNKNOWN_MEMBER_ID
    """)


def test_only_static_members_and_none_of_them_joins() -> None:
    # The rebalance waits until their sessions end.
    play(TWO_STATIC.replace("i1", "i1 session=200000").replace("i2", "i2 session=200000")).play("""
        c joins                 | c: MEMBER_ID_REQUIRED
        c joins                 | [PreparingRebalance]
        c leaves                | c: UNKNOWN_MEMBER_ID; c: NONE
        60000 ms pass           |
        60000 ms pass           |
        a joins                 |
        60000 ms pass           | [CompletingRebalance]; a: generation 2, leads a b
    """)


def test_an_administrator_removes_static_members() -> None:
    # The request has only instance ids. Each gets its own answer, and the remaining members rebalance once.
    play(TWO_STATIC).play("""
        c joins instance=i3     | [PreparingRebalance]
        a joins                 |
        b joins                 | [CompletingRebalance]; a: generation 2, leads a b c; b: generation 2; c: generation 2
        x removes i2,i9,i3      | [PreparingRebalance]; x: NONE UNKNOWN_MEMBER_ID NONE
        b beats                 | b: UNKNOWN_MEMBER_ID
        a joins                 | [CompletingRebalance]; a: generation 3, leads a
    """)


def test_a_restart_in_a_full_group() -> None:
    # The member is not new: its place is reserved.
    play(TWO_STATIC, group_max_size=2).play("""
        c joins instance=i3     | c: GROUP_MAX_SIZE_REACHED
        b restarts              |
        b joins                 | stores generation 1 a=p0 b=p1; b: generation 1
    """)
