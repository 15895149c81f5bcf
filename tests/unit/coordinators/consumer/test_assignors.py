"""Server-side assignors: whatever the members and topics are, each partition has one subscriber, shares are even, and
partitions move little."""

import hypothesis.strategies as st
from hypothesis import given, settings

from ottla.coordinators.consumer.assignors import ASSIGNORS, Partitions, Subscriber, assign_range, assign_uniform

TOPICS = (b"t", b"u", b"v", b"w")


@st.composite
def sizes_of_topics(draw: st.DrawFn) -> dict[bytes, int]:
    return {topic: draw(st.integers(1, 9)) for topic in TOPICS}


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False) -> dict[str, Subscriber]:
    """Members with subscriptions and current partitions: each partition at most once, some of no use any more."""
    names = [f"m{number}" for number in range(draw(st.integers(1, 7)))]
    wants = st.frozensets(st.sampled_from(TOPICS), min_size=1)
    shared = draw(wants)
    holders = draw(
        st.dictionaries(st.tuples(st.sampled_from((*TOPICS, b"x")), st.integers(0, 11)), st.sampled_from(names))
    )
    held: dict[str, dict[bytes, set[int]]] = {name: {} for name in names}
    for (topic, number), name in holders.items():
        held[name].setdefault(topic, set()).add(number)
    return {
        name: Subscriber(
            shared if alike else draw(wants),
            {topic: frozenset(numbers) for topic, numbers in held[name].items()},
            draw(st.none() | st.just(f"i{name}")),
        )
        for name in names
    }


def places(partitions: Partitions) -> set[tuple[bytes, int]]:
    return {(topic, number) for topic, numbers in partitions.items() for number in numbers}


def wanted(members: dict[str, Subscriber], sizes: dict[bytes, int]) -> set[tuple[bytes, int]]:
    topics = {topic for member in members.values() for topic in member.topics}
    return {(topic, number) for topic in topics for number in range(sizes[topic])}


@given(st.sampled_from(sorted(ASSIGNORS)), groups(), sizes_of_topics())
@settings(max_examples=60)
def test_every_partition_has_one_member_that_subscribes_to_it(
    name: str, members: dict[str, Subscriber], sizes: dict[bytes, int]
) -> None:
    # This holds for any current assignment. Every member is in the result, and no topic is there without partitions.
    given_out = ASSIGNORS[name](members, sizes)
    assert given_out.keys() == members.keys()
    everything = [place for partitions in given_out.values() for place in places(partitions)]
    assert len(everything) == len(set(everything))
    assert set(everything) == wanted(members, sizes)
    for member, partitions in given_out.items():
        assert partitions.keys() <= members[member].topics
        assert all(partitions.values())


@given(groups(alike=True), sizes_of_topics())
@settings(max_examples=60)
def test_uniform_is_even_and_moves_no_more_than_it_must(
    members: dict[str, Subscriber], sizes: dict[bytes, int]
) -> None:
    # With equal subscriptions counts differ by one at most, and a partition stays if it can.
    given_out = assign_uniform(members, sizes)
    counts = {member: len(places(partitions)) for member, partitions in given_out.items()}
    assert max(counts.values()) - min(counts.values()) <= 1
    total = wanted(members, sizes)
    useful = {member: places(subscriber.held) & total for member, subscriber in members.items()}
    quota, extra = divmod(len(total), len(members))
    could_stay = sum(min(len(held), quota) for held in useful.values())
    could_stay += min(extra, sum(len(held) > quota for held in useful.values()))
    assert sum(len(useful[member] & places(given_out[member])) for member in members) == could_stay


@given(groups(), sizes_of_topics())
@settings(max_examples=60)
def test_uniform_leaves_no_move_that_would_be_fairer(members: dict[str, Subscriber], sizes: dict[bytes, int]) -> None:
    # With different subscriptions too: no member has two partitions more than another that could read one of them.
    given_out = assign_uniform(members, sizes)
    counts = {member: len(places(partitions)) for member, partitions in given_out.items()}
    for giver, partitions in given_out.items():
        for topic in partitions:
            for taker, subscriber in members.items():
                assert topic not in subscriber.topics or counts[giver] - counts[taker] <= 1


@given(groups(), sizes_of_topics())
@settings(max_examples=40)
def test_uniform_moves_nothing_when_nothing_changes(members: dict[str, Subscriber], sizes: dict[bytes, int]) -> None:
    # The assignor does not change its own result.
    given_out = assign_uniform(members, sizes)
    again = {member: members[member]._replace(held=given_out[member]) for member in members}
    assert assign_uniform(again, sizes) == given_out


def test_the_member_with_the_most_keeps_the_remaining_partition() -> None:
    # Two members share three partitions. The second one had two of them, and keeps both.
    members = {
        "a": Subscriber(frozenset((b"t",))),
        "b": Subscriber(frozenset((b"t",)), {b"t": frozenset((0, 1))}),
    }
    given_out = assign_uniform(members, {b"t": 3})
    assert given_out == {"a": {b"t": frozenset((2,))}, "b": {b"t": frozenset((0, 1))}}


def test_range_gives_neighbours_and_cuts_topics_alike() -> None:
    # The first members get one more. Partitions with the same number go to the same member.
    members = {name: Subscriber(frozenset((b"t", b"u"))) for name in ("c", "a", "b")}
    assert assign_range(members, {b"t": 7, b"u": 7}) == {
        "a": {b"t": frozenset((0, 1, 2)), b"u": frozenset((0, 1, 2))},
        "b": {b"t": frozenset((3, 4)), b"u": frozenset((3, 4))},
        "c": {b"t": frozenset((5, 6)), b"u": frozenset((5, 6))},
    }


def test_range_keeps_the_place_of_a_static_member() -> None:
    # Static members are sorted by instance id before all others, whatever their member id is.
    for id in ("a", "z"):
        members = {
            id: Subscriber(frozenset((b"t",)), instance_id="i"),
            "m": Subscriber(frozenset((b"t",))),
        }
        assert assign_range(members, {b"t": 3})[id] == {b"t": frozenset((0, 1))}


def test_a_thousand_members_take_milliseconds() -> None:
    # 20,000 partitions are assigned to new members, with equal and with mixed subscriptions: each once, evenly. Slow
    # code would reach the suite's time-out.
    topics = [bytes([number]) for number in range(100)]
    sizes = dict.fromkeys(topics, 200)
    alike = {f"m{number}": Subscriber(frozenset(topics)) for number in range(1000)}
    assert {len(places(each)) for each in assign_uniform(alike, sizes).values()} == {20}
    mixed = {f"m{number}": Subscriber(frozenset(topics[number % 50 :])) for number in range(1000)}
    counts = [len(places(each)) for each in assign_uniform(mixed, sizes).values()]
    assert sum(counts) == 20_000
    assert max(counts) - min(counts) <= 1
