"""Subscriptions by pattern: what is matched, when, and what is refused."""

import pytest

from ottla.coordinators.consumer import topic_searches
from ottla.coordinators.consumer.regular_expressions import check_pattern, match_patterns
from ottla.errors import ErrorCode, KafkaError
from tests.unit.coordinators.consumer_scripts import Stage, play


def test_a_pattern_matches_whole_names() -> None:
    # As with RE2's matches() in Kafka, a partial match is not enough.
    names = ["orders", "orders-1", "reorders", "Orders"]
    found = match_patterns(["orders", "orders.*", "(?i)orders", "^.*orders$", "[[:alpha:]]+", "nothing"], names)
    assert {pattern: sorted(topics) for pattern, topics in found.items()} == {
        "orders": ["orders"],
        "orders.*": ["orders", "orders-1"],
        "(?i)orders": ["Orders", "orders"],
        "^.*orders$": ["orders", "reorders"],
        "[[:alpha:]]+": ["Orders", "orders", "reorders"],
        "nothing": [],
    }


@pytest.mark.parametrize("pattern", ["(", "*", "a(?=b)", r"(a)\1", "a{1001}", "((a{100}){100}){100}", "x" * 3_000_000])
def test_patterns_that_re2_does_not_accept_are_refused(pattern: str) -> None:
    # Look-arounds and back-references, which cannot be matched in linear time, and what would need too much memory.
    with pytest.raises(KafkaError) as refused:
        check_pattern(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused.value.message


def test_a_pattern_that_is_slow_in_other_engines_is_fast() -> None:
    # A backtracking engine would need 2**200 steps, and reach the suite's time-out.
    assert match_patterns(["(a*)*b", "(a|a)*b"], ["a" * 200]) == {"(a*)*b": frozenset(), "(a|a)*b": frozenset()}


def test_members_of_one_pattern_share_its_topics() -> None:
    # The pattern is resolved once. New and deleted topics are found with the next heartbeat of any member.
    stage = play(
        """
        a joins topics= pattern=[tu] | [Stable]; a: epoch 2, reads t0 t1
        b joins topics= pattern=[tu] | [Reconciling]; b: epoch 3, reads nothing
        a beats             | a: epoch 2, reads t0
        a beats             | a: epoch 3
        b beats             | [Stable]; b: epoch 3, reads t1
        topics t=2 u=2 x=1  |
        b beats             | [Reconciling]; b: epoch 4, reads t1 u1
        a beats             | [Stable]; a: epoch 4, reads t0 u0
        """,
        {"t": 2},
    )
    assert stage.group.is_subscribed_to("u") and not stage.group.is_subscribed_to("x")
    assert stage.copy_from_log().groups["group"].is_subscribed_to("u")


def test_a_pattern_that_nobody_uses_is_forgotten() -> None:
    # This happens when its last user changes its subscription or leaves.
    stage = play(
        """
        a joins topics= pattern=[tu] | [Stable]; a: epoch 2, reads t0 u0
        a beats pattern=u   | [Reconciling]; a: epoch 2, reads u0
        a beats             | [Stable]; a: epoch 3
        """,
        {"t": 1, "u": 1},
    )
    assert list(stage.group.state.resolutions) == ["u"]
    stage.play("a leaves            | [Empty]; a: epoch -1")
    assert not stage.group.state.resolutions


def test_names_and_a_pattern_are_combined() -> None:
    play(
        """
        a joins topics=t pattern=u  | [Stable]; a: epoch 2, reads t0 u0
        a beats pattern=            | [Reconciling]; a: epoch 2, reads t0
        a beats                     | [Stable]; a: epoch 3
        a beats pattern=(           | a: INVALID_REGULAR_EXPRESSION
        a beats pattern=none        | a: epoch 3
        """,
        {"t": 1, "u": 1},
    )


def test_among_many_topics_the_search_is_an_errand(monkeypatch: pytest.MonkeyPatch) -> None:
    # The member is answered at once, and gets its topics when the search has ended. No second search runs meanwhile,
    # and the next one waits for its interval, however many topics are created.
    monkeypatch.setattr(topic_searches, "MATCHES_AT_ONCE", 0)
    stage = Stage({"t": 2}, {})
    stage.play("""
        a joins topics= pattern=[tu] | [Stable]; a: epoch 1, reads nothing
        a beats             | a: epoch 1
    """)
    assert len(stage.errands) == 1
    stage.play("""
        search              | [Assigning]
        a beats             | [Stable]; a: epoch 2, reads t0 t1
        topics t=2 u=1      |
        a beats             | a: epoch 2
    """)
    assert not stage.errands
    stage.play("""
        10000 ms pass       |
        a beats             | a: epoch 2
        search              | [Assigning]
        a beats             | [Stable]; a: epoch 3, reads t0 t1 u0
    """)


def test_a_search_that_ends_too_late_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its pattern has no users any more, or its group is gone.
    monkeypatch.setattr(topic_searches, "MATCHES_AT_ONCE", 0)
    stage = play("""
        a joins topics= pattern=t | [Stable]; a: epoch 1, reads nothing
        a leaves            | [Empty]; a: epoch -1
        search              |
    """)
    assert not stage.group.state.resolutions
    stage.run(None, lambda turn: stage.groups.store_found_topics("no such group", {}, turn))


def test_patterns_are_matched_again_from_time_to_time() -> None:
    # Also if nothing shows that topics have changed.
    stage = play("a joins topics= pattern=t | [Stable]; a: epoch 2, reads t0 t1 t2 t3")
    before = stage.group.state.resolutions["t"]
    for _ in range(60):
        stage.pass_ms(10_000)
        stage.play("a beats             | a: epoch 2")
    assert stage.group.state.resolutions["t"].wall_ms > before.wall_ms
