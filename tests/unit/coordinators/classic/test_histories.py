"""Random histories of a classic group, compared with a naive implementation of the same group; and groups with a
bug."""

from collections import Counter
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from ottla.coordinators.classic.group import ClassicGroup
from ottla.coordinators.classic.members import Roster
from ottla.coordinators.classic.rebalance import Rebalance
from ottla.coordinators.classic.states import ClassicState
from tests.unit.coordinators.classic_scripts import Client, Stage
from tests.unit.coordinators.naive_group import NaiveGroup

NAMES = ("a", "b", "c", "d")
PROTOCOLS = ("range", "range,sticky", "sticky,range", "sticky")
SESSIONS_MS = (6000, 10_000)
REBALANCES_MS = (8000, 20_000)

names = st.sampled_from(NAMES)


class Histories(RuleBasedStateMachine):
    """Four clients act at random. Every answer, record and state must be what the naive group says."""

    @initialize(limit=st.sampled_from((2, 100)))
    def begin(self, limit: int) -> None:
        self.stage = Stage(group_max_size=limit)
        self.naive = NaiveGroup(limit)

    def client(self, name: str) -> Client:
        return self.stage.client(name)

    def compare(self) -> None:
        told = Counter(event for event in self.stage.told() if not event.startswith("["))
        expected, self.naive.told = Counter(self.naive.told), []
        assert told == expected
        assert self.stage.group.state_name == self.naive.state

    def send_to_both(self, name: str, verb: str, *extra: Any) -> None:
        """Send the same request from the same client to both groups."""
        client = self.client(name)
        asked = (name, client.member_id, client.joining.instance, client.generation, *extra)
        getattr(self.naive, verb)(*asked)
        getattr(self.stage, f"{verb}s")(client)
        self.compare()

    @rule(
        name=names,
        static=st.booleans(),
        protocols=st.sampled_from(PROTOCOLS),
        topics=st.sampled_from(("t", "t", "u")),
        session=st.sampled_from(SESSIONS_MS),
        rebalance=st.sampled_from(REBALANCES_MS),
        version=st.sampled_from((3, 8, 9)),
    )
    def join(
        self, name: str, static: bool, protocols: str, topics: str, session: int, rebalance: int, version: int
    ) -> None:
        client = self.client(name)
        # Two clients share each instance id, so that they fence each other.
        instance = f"i{NAMES.index(name) // 2}" if static else None
        asked = (protocols.split(","), topics, session, rebalance, version, f"{name}-{self.stage.ids_given + 1}")
        self.naive.join(name, client.member_id, instance, *asked)
        client.joining.instance = instance
        self.stage.joins(
            client, protocols=protocols, topics=topics, session=session, rebalance=rebalance, version=version
        )
        self.compare()

    @rule(name=names)
    def join_again(self, name: str) -> None:
        """Join again with the fields of the last join, as clients do that were told to rejoin."""
        client = self.client(name)
        said = client.joining
        asked = (said.protocols.split(","), said.topics, said.session, said.rebalance, said.version)
        self.naive.join(name, client.member_id, said.instance, *asked, f"{name}-{self.stage.ids_given + 1}")
        self.stage.joins(client)
        self.compare()

    @rule(name=names)
    def restart(self, name: str) -> None:
        self.stage.restarts(self.client(name))

    @rule(name=names, shift=st.integers(0, 3))
    def sync(self, name: str, shift: int) -> None:
        client = self.client(name)
        given = {each: f"p{(number + shift) % 4}" for number, each in enumerate(sorted(self.stage.clients))}
        by_id = {self.client(each).member_id: assignment for each, assignment in given.items()}
        self.naive.sync(name, client.member_id, client.joining.instance, client.generation, by_id)
        self.stage.syncs(client, **given)
        self.compare()

    @rule(name=names)
    def beat(self, name: str) -> None:
        self.send_to_both(name, "beat")

    @rule(name=names)
    def commit(self, name: str) -> None:
        self.send_to_both(name, "commit")

    @rule(name=names)
    def leave(self, name: str) -> None:
        client = self.client(name)
        self.naive.leave(name, client.member_id, client.joining.instance)
        self.stage.leaves(client)
        self.compare()

    @rule(seconds=st.integers(1, 12))
    def wait(self, seconds: int) -> None:
        self.naive.pass_seconds(seconds)
        self.stage.pass_ms(seconds * 1000)
        self.compare()

    @invariant()
    def a_copy_from_the_log_is_the_last_complete_generation(self) -> None:
        if not hasattr(self, "stage"):
            return
        copy = self.stage.copy_from_log()
        generation, members = self.naive.stored
        assert copy.generation == generation
        assert [(each.id, each.assignment.decode()) for each in copy.members] == members
        if self.stage.group.state in (ClassicState.STABLE, ClassicState.EMPTY) and generation:
            live = self.stage.group
            assert (copy.state, copy.protocol, copy.generation) == (live.state, live.protocol, live.generation)
            live_leader, leader = live.members.leader, copy.members.leader
            assert (leader and leader.id) == (live_leader and live_leader.id)
            assert copy.describe() == live.describe()

    def teardown(self) -> None:
        """When all clients are silent, no request stays unanswered, and no member is left."""
        if not hasattr(self, "stage"):
            return
        self.naive.pass_seconds(700)
        self.stage.pass_ms(700_000)
        self.compare()
        assert not self.stage.waiting
        assert self.stage.group.state is ClassicState.EMPTY
        assert self.stage.group.wake_at is None
        assert not self.stage.group.members.pending


Histories.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
test_histories = Histories.TestCase


def do_nothing(*args: Any) -> None:
    return None


MUTANTS: dict[str, tuple[type, str, Any]] = {
    "takes requests of any generation": (ClassicGroup, "_check_generation", do_nothing),
    "knows no instance ids": (Roster, "find_instance", do_nothing),
    "does not renew sessions": (Rebalance, "renew", do_nothing),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_histories_find_a_bug_in_a_group(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The histories are fixed, because the test is about what they can find, not about luck.
    kind, attribute, replacement = MUTANTS[name]
    monkeypatch.setattr(kind, attribute, replacement)
    searched = settings(max_examples=200, stateful_step_count=40, derandomize=True, phases=(Phase.generate,))
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Histories, settings=searched)
