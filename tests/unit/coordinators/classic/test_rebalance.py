"""Classic groups: joining, syncing, leaving, failing. Each script has an action and beside it the expected events."""

import pytest

from tests.unit.coordinators.classic_scripts import Stage, play

ONE_MEMBER = """
    a joins                 | a: MEMBER_ID_REQUIRED
    a joins                 | [PreparingRebalance]
    3000 ms pass            | [CompletingRebalance]; a: generation 1, leads a
    a syncs a=p0            | stores generation 1 a=p0; [Stable]; a: gets p0
"""

TWO_MEMBERS = """
    a joins                 | a: MEMBER_ID_REQUIRED
    a joins                 | [PreparingRebalance]
    b joins                 | b: MEMBER_ID_REQUIRED
    b joins                 |
    3000 ms pass            |
    3000 ms pass            | [CompletingRebalance]; a: generation 1, leads a b; b: generation 1
    b syncs                 |
    a syncs a=p0 b=p1       | stores generation 1 a=p0 b=p1; [Stable]; a: gets p0; b: gets p1
"""


def test_a_first_member_joins() -> None:
    # The member is given an id, waits for others, and leads. Its assignment is stored before it is answered.
    play(ONE_MEMBER)


def test_two_members_join() -> None:
    # The first member leads. If a second one joins while the first waits, both wait once more.
    play(TWO_MEMBERS)


def test_old_clients_join_at_once() -> None:
    # Before version 4 a member joins without a second request for its id.
    play("""
        a joins version=3   | [PreparingRebalance]
        3000 ms pass        | [CompletingRebalance]; a: generation 1, leads a
        a syncs a=p0        | stores generation 1 a=p0; [Stable]; a: gets p0
    """)


def test_a_first_version_join_has_only_a_session_time_out() -> None:
    # Version 0 has no rebalance time-out, so the session time-out counts. Here it limits how long others are waited
    # for.
    play("""
        a joins version=0 rebalance=-1 session=6000 | [PreparingRebalance]
        3000 ms pass        | [CompletingRebalance]; a: generation 1, leads a
        a syncs a=p0        | stores generation 1 a=p0; [Stable]; a: gets p0
        b joins version=0 rebalance=-1 session=6000 | [PreparingRebalance]
        5000 ms pass        |
        a beats             | a: REBALANCE_IN_PROGRESS
        1000 ms pass        | [CompletingRebalance]; b: generation 2, leads b
    """)


def test_the_first_wait_grows_with_newcomers_up_to_the_rebalance_time_out() -> None:
    # With each new member the group waits once more, but not longer than the rebalance time-out.
    play("""
        a joins version=3 rebalance=8000 | [PreparingRebalance]
        2000 ms pass                     |
        b joins version=3 rebalance=8000 |
        3000 ms pass                     |
        c joins version=3 rebalance=8000 |
        2000 ms pass                     |
        d joins version=3 rebalance=8000 |
        999 ms pass                      |
        1 ms pass                        | [CompletingRebalance]; a: generation 1, leads a b c d;
                                         | b: generation 1; c: generation 1; d: generation 1
    """)


def test_a_member_joins_a_stable_group() -> None:
    # Members are told with their next heartbeat. A member that does not join in time is removed.
    play(ONE_MEMBER).play("""
        a beats                 | a: is alive
        b joins                 | b: MEMBER_ID_REQUIRED
        a beats                 | a: is alive
        b joins                 | [PreparingRebalance]
        a beats                 | a: REBALANCE_IN_PROGRESS
        a joins                 | [CompletingRebalance]; a: generation 2, leads a b; b: generation 2
        a syncs a=p0 b=p1       | stores generation 2 a=p0 b=p1; [Stable]; a: gets p0
        b syncs                 | b: gets p1
    """)


def test_a_member_that_does_not_join_in_time_is_removed() -> None:
    # The others continue without it, under a new leader, although it sends heartbeats.
    play(TWO_MEMBERS).play("""
        c joins version=3       | [PreparingRebalance]
        b joins                 |
        9000 ms pass            |
        a beats                 | a: REBALANCE_IN_PROGRESS
        9000 ms pass            |
        a beats                 | a: REBALANCE_IN_PROGRESS
        9000 ms pass            |
        a beats                 | a: REBALANCE_IN_PROGRESS
        9000 ms pass            |
        a beats                 | a: REBALANCE_IN_PROGRESS
        9000 ms pass            |
        a beats                 | a: REBALANCE_IN_PROGRESS
        9000 ms pass            |
        a beats                 | a: REBALANCE_IN_PROGRESS
        6000 ms pass            | [CompletingRebalance]; b: generation 2, leads b c; c: generation 2
        a beats                 | a: UNKNOWN_MEMBER_ID
        b syncs b=p0 c=p1       | stores generation 2 b=p0 c=p1; [Stable]; b: gets p0
        c syncs                 | c: gets p1
    """)


def test_a_silent_member_is_removed() -> None:
    # The member is removed after its session time-out, and the others rebalance.
    play(TWO_MEMBERS).play("""
        5000 ms pass            |
        a beats                 | a: is alive
        5000 ms pass            | [PreparingRebalance]
        a beats                 | a: REBALANCE_IN_PROGRESS
        a joins                 | [CompletingRebalance]; a: generation 2, leads a
        b beats                 | b: UNKNOWN_MEMBER_ID
    """)


def test_a_group_whose_members_are_all_silent_is_empty() -> None:
    # The empty group is stored with a new generation, so a member that comes back late is refused.
    play(TWO_MEMBERS).play("""
        10000 ms pass           | [PreparingRebalance]; stores generation 2 empty; [Empty]
        a beats                 | a: UNKNOWN_MEMBER_ID
        a syncs                 | a: UNKNOWN_MEMBER_ID
        a commits               | a: UNKNOWN_MEMBER_ID
        a joins                 | a: UNKNOWN_MEMBER_ID
        a joins id=none         | a: MEMBER_ID_REQUIRED
        a joins                 | [PreparingRebalance]
    """)


def test_members_leave() -> None:
    # A member that leaves is removed at once. The last one leaves an empty group behind.
    play(TWO_MEMBERS).play("""
        a leaves                | [PreparingRebalance]; a: NONE
        a beats                 | a: UNKNOWN_MEMBER_ID
        a leaves                | a: UNKNOWN_MEMBER_ID
        b joins                 | [CompletingRebalance]; b: generation 2, leads b
        b syncs b=p0            | stores generation 2 b=p0; [Stable]; b: gets p0
        b leaves                | [PreparingRebalance]; stores generation 3 empty; [Empty]; b: NONE
        c joins version=3       | [PreparingRebalance]
        3000 ms pass            | [CompletingRebalance]; c: generation 4, leads c
    """)


def test_a_member_that_leaves_is_not_waited_for() -> None:
    # The rebalance that waited for it continues at once.
    play(TWO_MEMBERS).play("""
        a joins                 | [PreparingRebalance]
        b leaves                | [CompletingRebalance]; a: generation 2, leads a; b: NONE
    """)


def test_a_member_leaves_while_it_waits() -> None:
    # The member leaves over another connection. Its waiting request is answered with UNKNOWN_MEMBER_ID.
    play(TWO_MEMBERS).play("""
        a joins                 | [PreparingRebalance]
        b joins                 | [CompletingRebalance]; a: generation 2, leads a b; b: generation 2
        b syncs                 |
        b leaves                | [PreparingRebalance]; b: UNKNOWN_MEMBER_ID; b: NONE
        a joins                 | [CompletingRebalance]; a: generation 3, leads a
        a syncs a=p0            | stores generation 3 a=p0; [Stable]; a: gets p0
    """)


def test_an_empty_group_has_no_timer() -> None:
    # The rebalance time-out does not apply to a group without members.
    stage = play(TWO_MEMBERS).play("""
        a joins                 | [PreparingRebalance]
        a leaves                | a: UNKNOWN_MEMBER_ID; a: NONE
        b leaves                | stores generation 2 empty; [Empty]; b: NONE
        900000 ms pass          |
    """)
    assert stage.group.wake_at is None


def test_a_member_dies_while_it_waits_to_join() -> None:
    # A known member has no session while it waits, and a new one when it is answered. Then it is missed.
    play(TWO_MEMBERS).play("""
        a joins                 | [PreparingRebalance]
        9000 ms pass            |
        b beats                 | b: REBALANCE_IN_PROGRESS
        9000 ms pass            |
        b joins                 | [CompletingRebalance]; a: generation 2, leads a b; b: generation 2
        b syncs                 |
        10000 ms pass           | [PreparingRebalance]; b: REBALANCE_IN_PROGRESS
        b joins                 | [CompletingRebalance]; b: generation 3, leads b
    """)


def test_a_new_member_dies_while_it_waits_to_join() -> None:
    # The new member may wait for five minutes. Then it is told to join again, and is not waited for.
    play("""
        a joins version=3 rebalance=1000000 | [PreparingRebalance]
        3000 ms pass                        | [CompletingRebalance]; a: generation 1, leads a
        a syncs a=p0                        | stores generation 1 a=p0; [Stable]; a: gets p0
        a joins session=1000000             | [CompletingRebalance]; a: generation 2, leads a
        a syncs a=p0                        | stores generation 2 a=p0; [Stable]; a: gets p0
        b joins version=3                   | [PreparingRebalance]
        299999 ms pass                      |
        1 ms pass                           | b: UNKNOWN_MEMBER_ID
        a joins                             | [CompletingRebalance]; a: generation 3, leads a
    """)


def test_a_member_never_syncs() -> None:
    # The member is removed after the rebalance time-out, although it sends heartbeats.
    play(TWO_MEMBERS.replace("b syncs                 |", "").replace("; b: gets p1", "")).play("""
        9000 ms pass            |
        a beats                 | a: is alive
        b beats                 | b: is alive
        9000 ms pass            |
        a beats                 | a: is alive
        b beats                 | b: is alive
        9000 ms pass            |
        a beats                 | a: is alive
        b beats                 | b: is alive
        9000 ms pass            |
        a beats                 | a: is alive
        b beats                 | b: is alive
        9000 ms pass            |
        a beats                 | a: is alive
        b beats                 | b: is alive
        9000 ms pass            |
        a beats                 | a: is alive
        b beats                 | b: is alive
        6000 ms pass            | [PreparingRebalance]
        b syncs                 | b: UNKNOWN_MEMBER_ID
        a joins                 | [CompletingRebalance]; a: generation 2, leads a
    """)


def test_the_leader_never_syncs() -> None:
    # The session of the leader ends. Members that wait for the assignment are told to join again.
    play("""
        a joins version=3       | [PreparingRebalance]
        b joins version=3       |
        6000 ms pass            | [CompletingRebalance]; a: generation 1, leads a b; b: generation 1
        b syncs                 |
        10000 ms pass           | [PreparingRebalance]; b: REBALANCE_IN_PROGRESS
        b joins                 | [CompletingRebalance]; b: generation 2, leads b
    """)


def test_heartbeats_during_a_long_sync() -> None:
    # While the leader computes the assignment, heartbeats are answered and keep all members in the group.
    play("""
        a joins version=3       | [PreparingRebalance]
        b joins version=3       |
        6000 ms pass            | [CompletingRebalance]; a: generation 1, leads a b; b: generation 1
        b syncs                 |
        9000 ms pass            |
        a beats                 | a: is alive
        b beats                 | b: is alive
        9000 ms pass            |
        a beats                 | a: is alive
        9000 ms pass            |
        a syncs a=p0 b=p1       | stores generation 1 a=p0 b=p1; [Stable]; a: gets p0; b: gets p1
    """)


def test_a_new_member_interrupts_a_sync() -> None:
    # Members that wait for an assignment are told to join again, and an assignment that comes too late is refused.
    play("""
        a joins version=3       | [PreparingRebalance]
        b joins version=3       |
        6000 ms pass            | [CompletingRebalance]; a: generation 1, leads a b; b: generation 1
        b syncs                 |
        c joins version=3       | [PreparingRebalance]; b: REBALANCE_IN_PROGRESS
        a syncs a=p0 b=p1       | a: REBALANCE_IN_PROGRESS
        a joins                 |
        b joins                 | [CompletingRebalance]; a: generation 2, leads a b c; b: generation 2; c: generation 2
        b syncs                 |
        a syncs a=p0 b=p1 c=p2  | stores generation 2 a=p0 b=p1 c=p2; [Stable]; a: gets p0; b: gets p1
        c syncs                 | c: gets p2
    """)


def test_a_member_without_an_assignment_gets_nothing() -> None:
    # A leader may leave out a member, and may assign to a member that is gone.
    play("""
        a joins version=3       | [PreparingRebalance]
        b joins version=3       |
        6000 ms pass            | [CompletingRebalance]; a: generation 1, leads a b; b: generation 1
        x joins id=none version=9 | x: MEMBER_ID_REQUIRED
        a syncs a=p0 x=p1       | stores generation 1 a=p0 b=; [Stable]; a: gets p0
        b syncs                 | b: gets nothing
    """)


def test_joining_again_without_a_change() -> None:
    # A follower that lost its answer gets it again. If the leader joins again, everybody has to.
    play(TWO_MEMBERS).play("""
        b joins                 | b: generation 1
        b syncs                 | b: gets p1
        a joins                 | [PreparingRebalance]
        b joins                 | [CompletingRebalance]; a: generation 2, leads a b; b: generation 2
        a joins                 | a: generation 2, leads a b
        b joins                 | b: generation 2
        b joins topics=other    | [PreparingRebalance]
        a joins                 | [CompletingRebalance]; a: generation 3, leads a b; b: generation 3
    """)


def test_a_follower_that_changes_its_subscription() -> None:
    # The member subscribes to another topic, so everybody joins.
    play(TWO_MEMBERS).play("""
        b joins topics=other    | [PreparingRebalance]
        a beats                 | a: REBALANCE_IN_PROGRESS
    """)


def test_a_client_that_asks_twice() -> None:
    # The older request is answered too, so that it does not wait for ever.
    play(TWO_MEMBERS).play("""
        a joins                 | [PreparingRebalance]
        a joins                 | a: REBALANCE_IN_PROGRESS
        b joins                 | [CompletingRebalance]; a: generation 2, leads a b; b: generation 2
        b syncs                 |
        b syncs                 | b: REBALANCE_IN_PROGRESS
        a syncs a=p0 b=p1       | stores generation 2 a=p0 b=p1; [Stable]; a: gets p0; b: gets p1
    """)


def test_a_member_id_that_is_never_used() -> None:
    # A group waits for the id as for a member, and the id expires like a session.
    play(ONE_MEMBER).play("""
        b joins                 | b: MEMBER_ID_REQUIRED
        a joins                 | [PreparingRebalance]
        9999 ms pass            |
        1 ms pass               | [CompletingRebalance]; a: generation 2, leads a
        b joins                 | b: UNKNOWN_MEMBER_ID
    """)


def test_a_member_id_that_is_given_back() -> None:
    # The group does not wait for the id any more, and a stable group is not disturbed.
    play(ONE_MEMBER).play("""
        b joins                 | b: MEMBER_ID_REQUIRED
        b leaves                | b: NONE
        c joins                 | c: MEMBER_ID_REQUIRED
        a joins                 | [PreparingRebalance]
        c leaves                | [CompletingRebalance]; a: generation 2, leads a; c: NONE
    """)


def test_the_last_member_leaves_while_a_member_id_is_unused() -> None:
    # There is no member whose time-out counts, so the rebalance has no time at all. A member that joins before its
    # timer runs still takes part, without the wait of an empty group. If none does, an empty generation is stored once.
    play(ONE_MEMBER).play("""
        b joins                 | b: MEMBER_ID_REQUIRED
        a leaves                | [PreparingRebalance]; a: NONE
        0 ms pass               | stores generation 2 empty; [Empty]
        60000 ms pass           |
    """)
    play(ONE_MEMBER).play("""
        b joins                 | b: MEMBER_ID_REQUIRED
        a leaves                | [PreparingRebalance]; a: NONE
        c joins version=3       |
        0 ms pass               | [CompletingRebalance]; c: generation 2, leads c
        9999 ms pass            |
        1 ms pass               | [PreparingRebalance]; stores generation 3 empty; [Empty]
    """)


def test_protocols_are_voted_for() -> None:
    # Among the protocols that all members know, the one that most of them prefer is chosen.
    play("""
        a joins version=3 protocols=range,sticky,x | [PreparingRebalance]
        b joins version=3 protocols=sticky,range   |
        c joins version=3 protocols=y,sticky,range |
        6000 ms pass                               | [CompletingRebalance]; a: generation 1 with sticky, leads a b c;
                                                   | b: generation 1 with sticky; c: generation 1 with sticky
    """)


def test_the_protocol_that_fewer_prefer_loses() -> None:
    # The name does not matter, except that the first by name is chosen among equals.
    play("""
        a joins version=3 protocols=sticky,range | [PreparingRebalance]
        b joins version=3 protocols=range,sticky |
        c joins version=3 protocols=range,sticky |
        6000 ms pass                             | [CompletingRebalance]; a: generation 1, leads a b c;
                                                 | b: generation 1; c: generation 1
        c leaves                                 | [PreparingRebalance]; c: NONE
        a joins                                  |
        b joins                                  | [CompletingRebalance]; a: generation 2, leads a b; b: generation 2
    """)


@pytest.mark.parametrize("words", ["protocols=sticky", "type=connect", "protocols="])
def test_a_member_that_shares_no_protocol(words: str) -> None:
    # The member is refused, and the group is not affected.
    play(ONE_MEMBER).play(f"""
        b joins {words}         | b: INCONSISTENT_GROUP_PROTOCOL
        b joins version=3       | b: INCONSISTENT_GROUP_PROTOCOL
        a beats                 | a: is alive
    """)


@pytest.mark.parametrize("words", ["protocols=", "type="])
def test_a_first_member_needs_a_protocol(words: str) -> None:
    play(f"a joins {words} | a: INCONSISTENT_GROUP_PROTOCOL")


def test_requests_of_an_old_generation_are_refused() -> None:
    # A member that missed a rebalance may neither commit, nor assign, nor send heartbeats.
    play(TWO_MEMBERS).play("""
        a joins                 | [PreparingRebalance]
        b joins                 | [CompletingRebalance]; a: generation 2, leads a b; b: generation 2
        a commits               | a: REBALANCE_IN_PROGRESS
        a syncs a=p0 b=p1       | stores generation 2 a=p0 b=p1; [Stable]; a: gets p0
        a commits               | a: commits
        a commits generation=1  | a: ILLEGAL_GENERATION
        a commits generation=3  | a: ILLEGAL_GENERATION
        a commits generation=-1 | a: ILLEGAL_GENERATION
        x commits generation=2  | x: UNKNOWN_MEMBER_ID
        x commits generation=-1 | x: UNKNOWN_MEMBER_ID
    """)


def test_commits_keep_a_member_alive() -> None:
    # This also holds while others join, with the generation of the member.
    play(ONE_MEMBER).play("""
        9000 ms pass            |
        a commits               | a: commits
        9000 ms pass            |
        a commits               | a: commits
        b joins version=3       | [PreparingRebalance]
        9000 ms pass            |
        a commits               | a: commits
        9000 ms pass            |
        a leaves                | [CompletingRebalance]; b: generation 2, leads b; a: NONE
        a commits               | a: UNKNOWN_MEMBER_ID
    """)


def test_any_client_may_commit_to_a_group_without_members() -> None:
    # As long as the request does not name a member.
    play("""
        a commits generation=-1 | a: commits
        a commits generation=0  | a: UNKNOWN_MEMBER_ID
        a joins                 | a: MEMBER_ID_REQUIRED
        x commits generation=-1 | x: commits
        a joins                 | [PreparingRebalance]
        x commits generation=-1 | x: UNKNOWN_MEMBER_ID
    """)


def test_a_full_group_refuses_members() -> None:
    # group.max.size is respected. When it is lowered, the members that join first may stay.
    play(TWO_MEMBERS, group_max_size=2).play("""
        c joins version=3       | c: GROUP_MAX_SIZE_REACHED
        a joins                 | [PreparingRebalance]
        c joins version=3       |
        b joins                 | [CompletingRebalance]; b: GROUP_MAX_SIZE_REACHED;
                                | a: generation 2, leads a c; c: generation 2
    """)


def test_a_reload() -> None:
    # Members are restored with their assignments, and each has a new session.
    stage = play(TWO_MEMBERS).play("""
        9000 ms pass            |
        reload                  | [Stable]
        9000 ms pass            |
        a beats                 | a: is alive
        b syncs                 | b: gets p1
        1000 ms pass            | [PreparingRebalance]
        a joins                 | [CompletingRebalance]; a: generation 2, leads a
    """)
    assert len(stage.group.members) == 1


def test_a_reload_in_the_middle_of_a_rebalance() -> None:
    # The last complete generation is restored. Its members continue or join again, and new ones start over.
    play(TWO_MEMBERS).play("""
        c joins version=3       | [PreparingRebalance]
        a joins                 |
        reload                  | [Stable]
        b beats                 | b: is alive
        a joins                 | [PreparingRebalance]
        b joins                 | [CompletingRebalance]; a: generation 2, leads a b; b: generation 2
        reload                  | [Stable]
        a syncs a=p0 b=p1       | a: ILLEGAL_GENERATION
        c joins                 | [PreparingRebalance]
    """)


def test_a_reload_with_a_lower_limit() -> None:
    # The group rebalances, and the last members to join are refused.
    play(TWO_MEMBERS).play("""
        reload with a limit of 1 | [Stable]; [PreparingRebalance]
        b joins                 |
        a joins                 | [CompletingRebalance]; a: GROUP_MAX_SIZE_REACHED; b: generation 2, leads b
    """)


def test_a_reload_of_an_empty_group() -> None:
    # Generations continue to count up, so a member that was away cannot mistake one for another.
    play(ONE_MEMBER).play("""
        a leaves                | [PreparingRebalance]; stores generation 2 empty; [Empty]; a: NONE
        reload                  | [Empty]
        a joins version=3       | a: UNKNOWN_MEMBER_ID
        a joins id=none         | [PreparingRebalance]
        3000 ms pass            | [CompletingRebalance]; a: generation 3, leads a
    """)


def test_a_group_can_be_read_from_its_description() -> None:
    # Subscriptions are shown when the group is stable, assignments always.
    stage = play(TWO_MEMBERS)
    described = stage.group.describe()
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    assert [(each.client_id, each.client_host, each.member_assignment) for each in described.members] == [
        ("a", "/127.0.0.1", b"p0"),
        ("b", "/127.0.0.1", b"p1"),
    ]
    assert all(each.member_metadata for each in described.members)
    stage.joins(stage.client("a"))
    described = stage.group.describe()
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    told = [(each.member_metadata, each.member_assignment) for each in described.members]
    assert told == [(b"", b"p0"), (b"", b"p1")]


def test_a_thousand_members() -> None:
    # A rebalance does not take work for each pair of members.
    stage = Stage()
    clients = [stage.client(f"c{number}") for number in range(1000)]
    for client in clients:
        stage.joins(client, version=3)
    stage.pass_ms(6000)
    for client in clients[1:]:
        stage.syncs(client)
    stage.syncs(clients[0], **{client.name: f"p{number}" for number, client in enumerate(clients)})
    assert stage.told()[-1] == "c999: gets p999"
    assert stage.group.state_name == "Stable"
