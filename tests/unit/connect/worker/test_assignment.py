"""Assignments are complete, balanced and sticky, and what moves is nobody's until its worker has stopped it."""

from random import Random

from ottla.connect.worker.assignment import TakeoverDelay, assign


def settle(owned: dict[str, set[str]], connectors: set[str]) -> tuple[dict[str, set[str]], int]:
    """Rebalance until nothing changes, as members do that stop what they lost and join again. Counts the moves."""
    moves = 0
    for _ in range(10):
        assigned = assign(owned, connectors)
        names = [name for each in assigned.values() for name in each]
        assert len(names) == len(set(names))
        for member, each in assigned.items():
            others = {name for other in owned if other != member for name in owned[other]}
            assert not others & set(each), "a connector was given away while it still ran"
        moves += sum(len((owned[member] & connectors) - set(each)) for member, each in assigned.items())
        settled = {member: set(each) for member, each in assigned.items()}
        if settled == owned:
            return settled, moves
        owned = settled
    raise AssertionError("the assignment never settles")


def test_twenty_connectors_on_two_workers_that_come_and_go() -> None:
    connectors = {f"c{number}" for number in range(20)}
    one, moves = settle({"a": set()}, connectors)
    assert (one, moves) == ({"a": connectors}, 0)
    two, moves = settle({**one, "b": set()}, connectors)
    assert {len(each) for each in two.values()} == {10}
    assert moves == 10
    alone, moves = settle({"b": two["b"]}, connectors)
    assert (alone, moves) == ({"b": connectors}, 0)


def test_random_groups_are_balanced_with_few_moves(seed: int) -> None:
    random = Random(seed)
    owned: dict[str, set[str]] = {"m0": set()}
    connectors: set[str] = set()
    for step in range(200):
        change = random.randrange(4)
        if change == 0:
            owned[f"m{step}"] = set()
        elif change == 1 and len(owned) > 1:
            del owned[random.choice(sorted(owned))]
        elif change == 2:
            connectors |= {f"c{step}-{number}" for number in range(random.randrange(5))}
        elif connectors:
            connectors.discard(random.choice(sorted(connectors)))
        least, rest = divmod(len(connectors), len(owned))
        surplus = sum(max(len(each & connectors) - least, 0) for each in owned.values())
        owned, moves = settle(owned, connectors)
        assert set().union(*owned.values()) == connectors
        assert all(least <= len(each) <= least + bool(rest) for each in owned.values())
        assert moves <= surplus


def test_a_connector_that_two_members_claim_stays_with_one() -> None:
    assigned = assign({"a": {"x"}, "b": {"x", "y"}}, {"x", "y"})
    assert assigned == {"a": ["x"], "b": ["y"]}


def test_a_delay_keeps_connectors_for_a_member_that_returns() -> None:
    now = [0.0]
    delay = TakeoverDelay(10, lambda: now[0])
    assert delay.hold_back({"a": {"x"}, "b": {"y"}}) == set()
    delay.remember({"a": {"x"}, "b": {"y"}})
    assert delay.hold_back({"a": {"x"}}) == {"y"}
    assert assign({"a": {"x"}}, {"x", "y"}, {"y"}) == {"a": ["x"]}
    delay.remember({"a": {"x"}})
    assert not delay.is_over()
    assert delay.hold_back({"a": {"x"}, "new": set()}) == set()


def test_a_delay_ends() -> None:
    now = [0.0]
    delay = TakeoverDelay(10, lambda: now[0])
    delay.remember({"a": {"x"}, "b": {"y"}})
    assert delay.hold_back({"a": {"x"}}) == {"y"}
    now[0] = 10
    assert delay.is_over()
    assert delay.hold_back({"a": {"x"}}) == set()
    assert not delay.is_over()


def test_without_a_delay_connectors_are_taken_over_at_once() -> None:
    delay = TakeoverDelay(0, lambda: 0.0)
    delay.remember({"a": {"x"}, "b": {"y"}})
    assert delay.hold_back({"a": {"x"}}) == set()
