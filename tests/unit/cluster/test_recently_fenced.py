"""Which brokers were fenced a moment ago, as the metadata changes and time passes."""

from dataclasses import replace

from ottla.cluster.changes import Change, Endpoint, FenceBroker, RegisterBroker, UnfenceBroker, UnregisterBroker
from ottla.cluster.image import EMPTY, Image
from ottla.cluster.recently_fenced import LISTED_S, RecentlyFenced

ENDPOINTS = (Endpoint("PLAINTEXT", "host", 9092, "PLAINTEXT"),)


class Cluster:
    """Metadata that changes, and what `RecentlyFenced` makes of it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.image: Image = EMPTY
        self.recently_fenced = RecentlyFenced(lambda: self.now, EMPTY)

    def change(self, *changes: Change) -> tuple[int, ...]:
        before, self.image = self.image, self.image.replay(self.image.version + 1, changes)
        self.recently_fenced.follow(before, self.image)
        return self.recently_fenced.list_ids()

    def register(self, broker_id: int) -> tuple[int, ...]:
        return self.change(RegisterBroker(broker_id, (bytes([broker_id]) * 16,), ENDPOINTS))

    def unfence(self, broker_id: int) -> tuple[int, ...]:
        return self.change(UnfenceBroker(broker_id, self.epoch(broker_id)))

    def fence(self, broker_id: int) -> tuple[int, ...]:
        return self.change(FenceBroker(broker_id, self.epoch(broker_id)))

    def epoch(self, broker_id: int) -> int:
        broker = self.image.broker(broker_id)
        assert broker is not None
        return broker.epoch


def run_three() -> Cluster:
    cluster = Cluster()
    for broker_id in (1, 2, 3):
        assert cluster.register(broker_id) == (), "a new broker has never served"
        assert cluster.unfence(broker_id) == ()
    return cluster


def test_a_broker_is_recently_fenced_for_a_while() -> None:
    cluster = run_three()
    assert cluster.fence(3) == (3,)
    cluster.now += LISTED_S / 2
    assert cluster.fence(1) == (1, 3)
    cluster.now += LISTED_S / 2
    assert cluster.recently_fenced.list_ids() == (1,)
    cluster.now += LISTED_S / 2
    assert cluster.recently_fenced.list_ids() == ()


def test_a_broker_that_is_back_is_not() -> None:
    cluster = run_three()
    cluster.fence(2)
    cluster.now += 1
    assert cluster.register(2) == (2,), "it still has to catch up"
    assert cluster.unfence(2) == ()


def test_a_broker_that_registers_anew_at_once_is() -> None:
    # It came back before anybody had noticed that it was gone: its registration fences it.
    cluster = run_three()
    assert cluster.register(2) == (2,)
    assert cluster.unfence(2) == ()


def test_a_broker_that_is_unregistered_is_not() -> None:
    cluster = run_three()
    cluster.fence(2)
    assert cluster.change(UnregisterBroker(2)) == ()


def test_other_changes_count_for_nothing() -> None:
    cluster = run_three()
    cluster.fence(2)
    before = cluster.image
    cluster.now += LISTED_S / 2
    cluster.recently_fenced.follow(before, replace(before, cluster_id="other"))
    cluster.fence(1)
    assert cluster.recently_fenced.list_ids() == (1, 2)
    cluster.now += LISTED_S / 2
    assert cluster.recently_fenced.list_ids() == (1,), "the second change did not begin its time anew"


def test_a_broker_that_starts_takes_all_that_are_fenced_for_recently_fenced() -> None:
    # Its clients would drop brokers that those of other brokers still have in their lists, and this broker itself.
    cluster = run_three()
    cluster.fence(2)
    started = RecentlyFenced(lambda: cluster.now, cluster.image)
    assert started.list_ids() == (2,)
    cluster.now += LISTED_S
    assert started.list_ids() == ()
