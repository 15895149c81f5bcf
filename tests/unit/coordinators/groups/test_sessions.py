"""Sessions of many members: the nearest deadline is known, renewing is cheap, and each end is reported once and in
time."""

import hypothesis.strategies as st
from hypothesis import given

from ottla.coordinators.groups.sessions import Sessions


def test_a_renewed_session_ends_later() -> None:
    # The old deadline has no effect, the new one has.
    sessions = Sessions()
    sessions.renew("a", 10)
    sessions.renew("b", 12)
    sessions.renew("a", 20)
    assert sessions.take_expired(10) == []
    assert sessions.take_expired(15) == ["b"]
    assert sessions.take_expired(19) == []
    assert sessions.take_expired(20) == ["a"]
    assert (sessions.take_expired(100), sessions.next) == ([], None)


def test_a_session_can_become_shorter() -> None:
    # A new member has five minutes, and a member of a generation its own session: the nearer deadline counts at once.
    sessions = Sessions()
    sessions.renew("a", 300)
    sessions.renew("a", 10)
    assert sessions.next == 10
    assert sessions.take_expired(10) == ["a"]


def test_an_ended_session_is_forgotten() -> None:
    sessions = Sessions()
    sessions.renew("a", 10)
    sessions.end("a")
    assert (sessions.next, sessions.take_expired(20)) == (None, [])
    sessions.renew("a", 30)
    assert sessions.take_expired(20) == []
    assert sessions.take_expired(30) == ["a"]


def test_heartbeats_leave_nothing_behind() -> None:
    # A hundred thousand renewals of one session are one entry.
    sessions = Sessions()
    for deadline in range(100_000):
        sessions.renew("a", deadline)
    assert len(sessions._heap) == 1


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("renew"), st.sampled_from("abc"), st.integers(1, 20)),
        st.tuples(st.just("end"), st.sampled_from("abc"), st.just(0)),
        st.tuples(st.just("pass"), st.just(""), st.integers(1, 8)),
    )
)


@given(STEPS)
def test_sessions_end_like_a_table_of_deadlines(steps: list[tuple[str, str, int]]) -> None:
    # Compared with a dictionary of deadlines: the same members end at the same time, and the wake-up time is never too
    # late.
    sessions, deadlines, now = Sessions(), dict[str, int](), 0
    for verb, name, number in steps:
        if verb == "renew":
            sessions.renew(name, now + number)
            deadlines[name] = now + number
        elif verb == "end":
            sessions.end(name)
            deadlines.pop(name, None)
        else:
            now += number
            due = {each for each, deadline in deadlines.items() if deadline <= now}
            assert set(sessions.take_expired(now)) == due
            deadlines = {each: deadline for each, deadline in deadlines.items() if each not in due}
        assert {each: sessions.deadline(each) for each in deadlines} == deadlines
        assert (sessions.next is None) == (not deadlines)
        assert sessions.next is None or sessions.next <= min(deadlines.values())
