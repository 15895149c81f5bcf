"""Outcomes: what a merge keeps of its parts."""

import pytest

from ottla.coordinators.formats import GroupMetadataKey
from ottla.coordinators.machine import Outcome, ProducerIdentity, Reply, StoredRecord


def record(group_id: str) -> StoredRecord:
    return StoredRecord(GroupMetadataKey(group_id=group_id), None)


def test_a_merge_keeps_everything_in_order() -> None:
    # Every field of both outcomes is there, the first outcome's part first.
    done: list[str] = []
    first = Outcome(
        [record("a")], [Reply(1, "a")], errands=["find"], effects=[lambda: done.append("a")], may_be_refused=True
    )
    second = Outcome(
        [record("b")], [Reply(2, "b")], errands=["tell"], effects=[lambda: done.append("b")], may_be_refused=True
    )
    merged = Outcome.merge([first, second])
    for effect in merged.effects:
        effect()
    assert merged.records == [record("a"), record("b")]
    assert merged.replies == [Reply(1, "a"), Reply(2, "b")]
    assert merged.errands == ["find", "tell"]
    assert done == ["a", "b"]
    assert merged.may_be_refused


def test_a_merge_may_be_refused_only_if_each_part_may_be() -> None:
    # One part that changed the machine at once is enough: then the machine must be loaded again.
    firm, refusable = Outcome([record("a")]), Outcome([record("b")], may_be_refused=True)
    assert not Outcome.merge([refusable, firm]).may_be_refused
    assert not Outcome.merge([]).may_be_refused


def test_a_merge_has_the_producer_of_its_records() -> None:
    # A part without records does not count. Two transactions, or one and none, do not fit into one batch.
    producer = ProducerIdentity(7, 0)
    transactional = Outcome([record("a")], producer=producer)
    assert Outcome.merge([transactional, Outcome(replies=[Reply(1, None)])]).producer == producer
    for other in (ProducerIdentity(8, 0), None):
        with pytest.raises(AssertionError, match="several producers"):
            Outcome.merge([transactional, Outcome([record("b")], producer=other)])
