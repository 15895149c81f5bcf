"""Static members (KIP-345): a name of their own keeps a member's place while it restarts."""

from tests.unit.coordinators.classic_scripts import play

TWO_STATIC = """
    a joins instance=i1     | [PreparingRebalance]
    b joins instance=i2     |
    6000 ms pass            | [CompletingRebalance]; a: generation 1, leads a b; b: generation 1
    b syncs                 |
    a syncs a=p0 b=p1       | stores generation 1 a=p0 b=p1; [Stable]; a: gets p0; b: gets p1
"""
"""Static members need no second round for their id: a name that comes again cannot leave dead members behind."""


def test_a_restart_without_a_rebalance() -> None:
    # Under a new id it has what it had before; that id is stored; nobody else notices.
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
    # It still leads, is told who the members are, and that there is nothing to assign.
    play(TWO_STATIC).play("""
        a restarts              |
        a joins                 | stores generation 1 b=p1 a=p0; a: generation 1, leads b a, assigns nothing
        a syncs                 | a: gets p0
        a joins                 | [PreparingRebalance]
        b joins                 | [CompletingRebalance]; b: generation 2; a: generation 2, leads b a
    """)


def test_an_old_leader_restarts_without_a_rebalance() -> None:
    # Before version 9 it cannot be told not to assign, so it is not told that it leads.
    play(TWO_STATIC).play("""
        a restarts              |
        a joins version=8       | stores generation 1 b=p1 a=p0; a: generation 1
        a syncs                 | a: gets p0
    """)


def test_a_restart_that_changes_the_protocol() -> None:
    # What everybody agreed on is no longer what it wants: that needs a rebalance.
    play("""
        a joins instance=i1 protocols=range,sticky | [PreparingRebalance]
        3000 ms pass                               | [CompletingRebalance]; a: generation 1, leads a
        a syncs a=p0                               | stores generation 1 a=p0; [Stable]; a: gets p0
        a restarts                                 |
        a joins protocols=sticky,range             | [CompletingRebalance]; a: generation 2 with sticky, leads a
    """)


def test_two_with_one_name() -> None:
    # Two clients with one instance id. The later one wins; the earlier one is fenced in everything it does.
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


def test_two_with_one_name_while_members_join() -> None:
    # Two clients with one instance id. The one that waits is fenced at once, and the rebalance goes on with the other.
    play(TWO_STATIC).play("""
        b joins topics=other    | [PreparingRebalance]
        c joins instance=i2     | b: FENCED_INSTANCE_ID
        a joins                 | [CompletingRebalance]; a: generation 2, leads a c; c: generation 2
        a syncs a=p0 c=p1       | stores generation 2 a=p0 c=p1; [Stable]; a: gets p0
        c syncs                 | c: gets p1
    """)


def test_two_with_one_name_while_members_sync() -> None:
    # The leader was told of the one that is fenced, so its assignment would be wrong: everybody joins again.
    play(TWO_STATIC).play("""
        a joins                 | [PreparingRebalance]
        b joins                 | [CompletingRebalance]; a: generation 2, leads a b; b: generation 2
        b syncs                 |
        c joins instance=i2     | [PreparingRebalance]; b: FENCED_INSTANCE_ID
        a syncs a=p0 b=p1       | a: REBALANCE_IN_PROGRESS
        a joins                 | [CompletingRebalance]; a: generation 3, leads a c; c: generation 3
    """)


def test_two_with_one_name_in_a_new_group() -> None:
    # The first wait goes on for the one that takes the place.
    play("""
        a joins instance=i1     | [PreparingRebalance]
        b joins instance=i1     | a: FENCED_INSTANCE_ID
        3000 ms pass            | [CompletingRebalance]; b: generation 1, leads b
    """)


def test_a_name_that_is_not_known() -> None:
    # An id that is right under a name that is not.
    play(TWO_STATIC).play("""
        b joins instance=i3     | b: UNKNOWN_MEMBER_ID
        b beats                 | b: UNKNOWN_MEMBER_ID
        b commits               | b: UNKNOWN_MEMBER_ID
    """)


def test_a_rebalance_does_not_wait_for_ever_for_a_static_member() -> None:
    # One that does not join keeps its place until its session ends: it may be restarting.
    play(TWO_STATIC.replace("i2", "i2 session=300000")).play("""
        a joins                 | [PreparingRebalance]
        60000 ms pass           | [CompletingRebalance]; a: generation 2, leads a b
        a syncs a=p0 b=p1       | stores generation 2 a=p0 b=p1; [Stable]; a: gets p0
        b beats                 | b: ILLEGAL_GENERATION
        b joins                 | b: generation 2
        b syncs                 | b: gets p1
    """)


def test_a_static_member_that_stays_away() -> None:
    # After its session the others share what it had.
    play(TWO_STATIC).play("""
        9000 ms pass            |
        a beats                 | a: is alive
        1000 ms pass            | [PreparingRebalance]
        a joins                 | [CompletingRebalance]; a: generation 2, leads a
        b beats                 | b: UNKNOWN_MEMBER_ID
    """)


def test_nobody_but_static_members_and_none_of_them_joins() -> None:
    # The rebalance waits on until their sessions end.
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
    # By name alone; each name is answered by itself; those who stay rebalance once.
    play(TWO_STATIC).play("""
        c joins instance=i3     | [PreparingRebalance]
        a joins                 |
        b joins                 | [CompletingRebalance]; a: generation 2, leads a b c; b: generation 2; c: generation 2
        x removes i2,i9,i3      | [PreparingRebalance]; x: NONE UNKNOWN_MEMBER_ID NONE
        b beats                 | b: UNKNOWN_MEMBER_ID
        a joins                 | [CompletingRebalance]; a: generation 3, leads a
    """)


def test_a_restart_in_a_full_group() -> None:
    # It is no newcomer: its place is its own.
    play(TWO_STATIC, group_max_size=2).play("""
        c joins instance=i3     | c: GROUP_MAX_SIZE_REACHED
        b restarts              |
        b joins                 | stores generation 1 a=p0 b=p1; b: generation 1
    """)
