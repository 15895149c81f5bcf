"""Repartition topics: only what all their readers have read is deleted."""

import pyarrow as pa

from ottla.streams.planning.plan import PARCELS, AppPlan, InternalTopic, SourcePlan, SubtopologyPlan
from ottla.streams.running.purging import Purging
from ottla.topic_partition import TopicPartition

TOPIC = "app-by-shop-repartition"
WHERE = TopicPartition(TOPIC, 0)


def make_plan(*readers: str) -> AppPlan:
    sources = (
        SourcePlan("orders", pa.schema([]), ()),
        SourcePlan(TOPIC, pa.schema([]), (), holds=PARCELS),
    )
    units = tuple(SubtopologyPlan(name, sources, (), None, (), (), (), "app") for name in readers)
    return AppPlan("app", units, (InternalTopic(TOPIC, ("orders",), is_purged=True),))


def test_the_only_reader_decides_alone() -> None:
    """The user's own topics are never purged."""
    purging = Purging(make_plan("totals"))
    assert purging.note("totals", {TopicPartition("orders", 0): 9, WHERE: 5}) == {WHERE: 5}
    assert purging.note("totals", {WHERE: 7}) == {WHERE: 7}


def test_the_slowest_reader_decides() -> None:
    """Nothing is deleted before both have told how far they are."""
    purging = Purging(make_plan("totals", "alerts"))
    assert purging.note("totals", {WHERE: 5}) == {}
    assert purging.note("totals", {WHERE: 50}) == {}
    assert purging.note("alerts", {WHERE: 7}) == {WHERE: 7}
    assert purging.note("totals", {WHERE: 60, TopicPartition(TOPIC, 1): 3}) == {WHERE: 7}
    assert purging.note("alerts", {WHERE: 80}) == {WHERE: 60}
