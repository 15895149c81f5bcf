"""The followers of a partition: who counts for the high watermark, who may join the ISR, who has to leave it."""

from collections.abc import Callable, Sequence
from random import Random

import pytest

from ottla.cluster.image import PartitionImage
from ottla.replication.in_sync import Eligibility, InSync
from tests.samples import sample_size

LEADER, SECOND, THIRD = 0, 1, 2
REPLICAS = (LEADER, SECOND, THIRD)
LAG_S = 30.0
EPOCHS = {SECOND: 11, THIRD: 12}


class Cluster:
    """What the leader's broker knows about the others."""

    def __init__(self) -> None:
        self.time = 100.0
        self.lag_s_max = LAG_S
        self.epochs = dict(EPOCHS)
        self.fenced: set[int] = set()

    def now(self) -> float:
        return self.time

    def may_join(self, broker_id: int, broker_epoch: int) -> bool:
        return broker_id not in self.fenced and self.epochs[broker_id] == broker_epoch


def lead(cluster: Cluster, isr: tuple[int, ...] = REPLICAS, start_offset: int = 0, partition_epoch: int = 0) -> InSync:
    state = PartitionImage(REPLICAS, isr, LEADER, leader_epoch=3, partition_epoch=partition_epoch)
    return InSync(LEADER, state, start_offset, cluster.time)


def fetch(in_sync: InSync, cluster: Cluster, broker: int, offset: int, end: int, epoch: int | None = None) -> bool:
    return in_sync.note_fetch(broker, EPOCHS[broker] if epoch is None else epoch, offset, 0, end, cluster.time)


def test_a_follower_in_the_isr_holds_the_high_watermark_until_it_has_fetched() -> None:
    cluster = Cluster()
    in_sync = lead(cluster)
    assert fetch(in_sync, cluster, SECOND, 7, end=9)
    assert in_sync.find_committed(9, 9, cluster) < 0
    assert fetch(in_sync, cluster, THIRD, 8, end=9)
    assert in_sync.find_committed(9, 9, cluster) == 7
    assert in_sync.find_committed(5, 9, cluster) == 5, "the leader's own end counts as far as it is flushed"


def test_a_proposed_member_counts_at_once_and_a_removed_one_until_the_metadata_has_it() -> None:
    cluster = Cluster()
    in_sync = lead(cluster, (LEADER, SECOND))
    fetch(in_sync, cluster, SECOND, 9, end=9)
    in_sync.begin_proposal((LEADER, THIRD))
    assert sorted(in_sync.maximal_isr) == [LEADER, SECOND, THIRD] and in_sync.find_committed(9, 9, None) < 0
    fetch(in_sync, cluster, THIRD, 4, end=9)
    assert in_sync.find_committed(9, 9, None) == 4
    in_sync.end_proposal()
    assert sorted(in_sync.maximal_isr) == [LEADER, SECOND] and in_sync.find_committed(9, 9, None) == 9


def test_a_new_partition_epoch_settles_what_was_proposed_and_the_same_one_does_not() -> None:
    cluster = Cluster()
    in_sync = lead(cluster, (LEADER,), partition_epoch=5)
    in_sync.begin_proposal((LEADER, SECOND))
    in_sync.follow(PartitionImage((2, 0, 1), (LEADER,), LEADER, leader_epoch=3, partition_epoch=5), cluster.time)
    assert list(in_sync.pending) == [SECOND]
    in_sync.follow(PartitionImage(REPLICAS, (LEADER,), LEADER, leader_epoch=3, partition_epoch=6), cluster.time)
    assert list(in_sync.pending) == [] and list(in_sync.maximal_isr) == [LEADER]


def test_a_replica_that_leaves_is_forgotten_and_one_that_comes_starts_unknown() -> None:
    cluster = Cluster()
    in_sync = lead(cluster)
    fetch(in_sync, cluster, SECOND, 9, end=9)
    in_sync.follow(PartitionImage((LEADER, SECOND, 7), (LEADER, SECOND), LEADER, partition_epoch=1), cluster.time)
    assert sorted(in_sync.followers) == [SECOND, 7]
    assert in_sync.followers[SECOND].end_offset == 9 and in_sync.followers[7].end_offset < 0


@pytest.mark.parametrize(
    ("end", "high_watermark", "start_offset", "expected"),
    [(10, 10, 10, True), (9, 10, 0, False), (10, 4, 11, False), (10, 4, 10, True), (12, 4, 11, True)],
)
def test_joining_takes_the_high_watermark_and_the_start_of_the_epoch(
    end: int, high_watermark: int, start_offset: int, expected: bool
) -> None:
    cluster = Cluster()
    in_sync = lead(cluster, (LEADER, SECOND), start_offset)
    fetch(in_sync, cluster, THIRD, end, end=20)
    assert in_sync.can_join(THIRD, high_watermark, cluster) is expected


def test_a_fenced_broker_or_another_life_of_it_does_not_join() -> None:
    cluster = Cluster()
    in_sync = lead(cluster, (LEADER,))
    fetch(in_sync, cluster, SECOND, 9, end=9)
    fetch(in_sync, cluster, THIRD, 9, end=9)
    assert in_sync.choose_isr(9, 9, cluster) == REPLICAS
    cluster.fenced.add(SECOND)
    cluster.epochs[THIRD] += 1
    assert in_sync.choose_isr(9, 9, cluster) == (LEADER,)


def test_a_fetch_from_an_earlier_life_of_a_broker_changes_nothing() -> None:
    cluster = Cluster()
    in_sync = lead(cluster)
    assert fetch(in_sync, cluster, SECOND, 4, end=9, epoch=20)
    assert not fetch(in_sync, cluster, SECOND, 9, end=9, epoch=19)
    assert in_sync.followers[SECOND].end_offset == 4


def test_a_slow_follower_leaves_when_it_never_caught_up_within_the_lag_time() -> None:
    # It fetches all the time, always a little behind: what counts is when it last had all that the leader had then.
    cluster = Cluster()
    in_sync = lead(cluster, (LEADER, SECOND))
    end = 0
    for _ in range(8):
        cluster.time += 5
        end += 100
        fetch(in_sync, cluster, SECOND, end // 3, end)
    assert list(in_sync.list_lagging(end, cluster.time, LAG_S)) == [SECOND]
    assert in_sync.choose_isr(0, end, cluster) == (LEADER,)


def test_a_follower_that_is_one_fetch_behind_stays() -> None:
    # Under load its offset is never the leader's end, but always the end at its fetch before.
    cluster = Cluster()
    in_sync = lead(cluster, (LEADER, SECOND))
    end = 0
    for _ in range(20):
        cluster.time += 5
        before, end = end, end + 100
        fetch(in_sync, cluster, SECOND, before, end)
    assert list(in_sync.list_lagging(end, cluster.time, LAG_S)) == []


def test_an_idle_follower_at_the_end_does_not_lag() -> None:
    cluster = Cluster()
    in_sync = lead(cluster, (LEADER, SECOND))
    fetch(in_sync, cluster, SECOND, 5, end=5)
    cluster.time += 10 * LAG_S
    assert list(in_sync.list_lagging(5, cluster.time, LAG_S)) == []
    assert list(in_sync.list_lagging(6, cluster.time, LAG_S)) == [SECOND]


def test_members_of_the_isr_get_time_to_fetch_from_a_new_leader() -> None:
    cluster = Cluster()
    in_sync = lead(cluster)
    assert list(in_sync.list_lagging(50, cluster.time + LAG_S, LAG_S)) == []
    assert list(in_sync.list_lagging(50, cluster.time + LAG_S + 1, LAG_S)) == [SECOND, THIRD]


def test_a_new_member_of_the_isr_gets_time_too() -> None:
    cluster = Cluster()
    in_sync = lead(cluster, (LEADER,))
    in_sync.follow(PartitionImage(REPLICAS, (LEADER, THIRD), LEADER, leader_epoch=3, partition_epoch=1), cluster.time)
    assert list(in_sync.list_lagging(50, cluster.time + LAG_S, LAG_S)) == []
    assert list(in_sync.list_lagging(50, cluster.time + LAG_S + 1, LAG_S)) == [THIRD]


def test_a_follower_about_to_join_holds_the_high_watermark() -> None:
    # Otherwise a leader that is alone moves the high watermark with every record, and no follower ever reaches it.
    cluster = Cluster()
    in_sync = lead(cluster, (LEADER,))
    fetch(in_sync, cluster, SECOND, 10, end=10)
    assert in_sync.find_committed(15, 15, cluster) == 10
    cluster.fenced.add(SECOND)
    assert in_sync.find_committed(15, 15, cluster) == 15
    cluster.fenced.clear()
    cluster.time += LAG_S + 1
    assert in_sync.find_committed(15, 15, cluster) == 15, "it has not caught up for too long"


def test_the_high_watermark_does_not_wait_for_a_follower_that_left_by_itself() -> None:
    """Its disk is full. It was in sync a moment ago, and its next fetch still comes from where it stands."""
    cluster = Cluster()
    in_sync = lead(cluster)
    for broker in (SECOND, THIRD):
        fetch(in_sync, cluster, broker, 10, end=10)
    fetch(in_sync, cluster, SECOND, 15, end=15)
    assert in_sync.find_committed(15, 15, cluster) == 10
    in_sync.follow(PartitionImage(REPLICAS, (LEADER, SECOND), LEADER, leader_epoch=3, partition_epoch=1), cluster.time)
    assert in_sync.find_committed(15, 15, cluster) == 15
    cluster.time += 1
    fetch(in_sync, cluster, THIRD, 10, end=15)
    fetch(in_sync, cluster, SECOND, 20, end=20)
    assert in_sync.find_committed(20, 20, cluster) == 20
    fetch(in_sync, cluster, THIRD, 20, end=20)
    assert in_sync.can_join(THIRD, 20, cluster)


def test_a_follower_that_left_joins_again_only_after_a_fetch() -> None:
    """With too few in sync the high watermark stands still. A follower that copies nothing would join, be removed for
    its lag and join again, and each time producers would get an error."""
    cluster = Cluster()
    in_sync = lead(cluster, (LEADER, SECOND))
    fetch(in_sync, cluster, SECOND, 10, end=10)
    in_sync.follow(PartitionImage(REPLICAS, (LEADER,), LEADER, leader_epoch=3, partition_epoch=1), cluster.time)
    assert not in_sync.has_joining(10, cluster) and in_sync.choose_isr(10, 15, cluster) == (LEADER,)
    fetch(in_sync, cluster, SECOND, 10, end=15)
    assert in_sync.has_joining(10, cluster) and in_sync.choose_isr(10, 15, cluster) == (LEADER, SECOND)


def test_a_follower_that_was_behind_has_not_caught_up_because_nothing_happened() -> None:
    """The throttle holds its records back, or it left the ISR by itself and has not fetched since."""
    cluster = Cluster()
    in_sync = lead(cluster, (LEADER, SECOND))
    fetch(in_sync, cluster, THIRD, 4, end=9)
    in_sync.note_caught_up(THIRD, cluster.time)
    fetch(in_sync, cluster, SECOND, 9, end=9)
    assert in_sync.find_committed(9, 9, cluster) == 9
    in_sync.follow(PartitionImage(REPLICAS, (LEADER,), LEADER, leader_epoch=3, partition_epoch=1), cluster.time)
    in_sync.note_caught_up(SECOND, cluster.time)
    assert in_sync.find_committed(15, 15, cluster) == 15
    fetch(in_sync, cluster, SECOND, 15, end=15)
    cluster.time += LAG_S + 1
    in_sync.note_caught_up(SECOND, cluster.time)
    assert in_sync.find_committed(16, 16, cluster) == 15, "at its last fetch it had all that the leader had"


def test_the_low_watermark_is_the_smallest_log_start_of_the_living() -> None:
    cluster = Cluster()
    in_sync = lead(cluster)
    in_sync.note_fetch(SECOND, 11, 9, 3, 9, cluster.time)
    in_sync.note_fetch(THIRD, 12, 9, 5, 9, cluster.time)
    assert in_sync.low_watermark(6, REPLICAS) == 3
    assert in_sync.low_watermark(6, (LEADER, THIRD)) == 5
    assert in_sync.low_watermark(4, (LEADER, THIRD)) == 4
    assert in_sync.low_watermark(4, (LEADER,)) == 4


class Model:
    """A leader under random fetches and ISR changes, and every ISR that the metadata may have.

    `possible` are the ISRs that the metadata has or will turn out to have: the committed one, and those of appends
    whose outcome is not known. The leader learns the outcome only by `settle` or a new state.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.cluster = Cluster()
        self.in_sync = lead(self.cluster)
        self.end = 0
        self.high_watermark = 0
        self.ends = dict.fromkeys((SECOND, THIRD), 0)
        self.unknown: list[tuple[int, ...]] = []

    def step(self) -> None:
        self.random.choice(
            (self.append, self.fetch, self.fetch, self.propose, self.learn, self.remove_fenced, self.fence, self.wait)
        )()
        committed = self.in_sync.find_committed(self.end, self.end, self.cluster)
        self.high_watermark = max(self.high_watermark, committed)

    def append(self) -> None:
        self.end += self.random.randrange(1, 4)

    def fetch(self) -> None:
        broker = self.random.choice((SECOND, THIRD))
        self.ends[broker] = self.random.randint(self.ends[broker], self.end)
        self.in_sync.note_fetch(broker, self.cluster.epochs[broker], self.ends[broker], 0, self.end, self.cluster.time)

    def wait(self) -> None:
        self.cluster.time += self.random.choice((1.0, 5.0, LAG_S + 1))

    def fence(self) -> None:
        self.cluster.fenced ^= {self.random.choice((SECOND, THIRD))}

    def propose(self) -> tuple[int, ...] | None:
        """Propose an ISR. It takes effect, is refused, or nobody knows yet."""
        wanted = self.in_sync.choose_isr(self.high_watermark, self.end, self.cluster)
        if wanted == self.in_sync.state.isr:
            return None
        for broker in wanted:
            assert broker not in self.cluster.fenced or broker in self.in_sync.state.isr, "a fenced broker was let in"
        self.in_sync.begin_proposal(wanted)
        outcome = self.random.choice(("done", "refused", "unknown"))
        if outcome == "done":
            self.commit(wanted)
        elif outcome == "refused" and not self.unknown:
            self.in_sync.end_proposal()
        else:
            self.unknown.append(wanted)
        return wanted

    def learn(self) -> None:
        """The outcome of the unknown appends is found out: one of them is in the log, or none."""
        if self.unknown:
            isr = self.random.choice((*self.unknown, None))
            if isr is not None:
                self.commit(isr)
            else:
                self.unknown.clear()
                self.in_sync.end_proposal()

    def remove_fenced(self) -> None:
        """An entry of another broker fences a follower, which then leaves the ISR."""
        isr = tuple(broker for broker in self.in_sync.state.isr if broker not in self.cluster.fenced)
        if isr != self.in_sync.state.isr:
            self.commit(isr)

    def commit(self, isr: tuple[int, ...]) -> None:
        self.unknown.clear()  # they named an earlier partition epoch
        epoch = self.in_sync.state.partition_epoch + 1
        state = PartitionImage(REPLICAS, isr, LEADER, leader_epoch=3, partition_epoch=epoch)
        self.in_sync.follow(state, self.cluster.time)

    @property
    def possible(self) -> list[tuple[int, ...]]:
        return [self.in_sync.state.isr, *self.unknown]


def run_model(seed: int) -> None:
    model = Model(Random(seed))
    for _ in range(60):
        model.step()
        for isr in model.possible:
            for broker in isr:
                if broker != LEADER:
                    assert model.ends[broker] >= model.high_watermark, f"seed {seed}: {isr}"


def test_no_possible_isr_lacks_a_record_below_the_high_watermark(seed: int) -> None:
    for number in range(sample_size(50, 5000)):
        run_model(seed + number)


def count_committed_only(self: InSync) -> None:
    """A mistake: a follower that is being added does not count yet."""
    self._counted = [follower for broker, follower in self.followers.items() if broker in self.state.isr]
    self._others = [(broker, follower) for broker, follower in self.followers.items() if broker not in self.state.isr]


def forget_at_once(self: InSync, isr: Sequence[int]) -> None:
    """A mistake: a follower that is being removed counts no more."""
    removed = [broker for broker in self.state.isr if broker not in isr]
    self._counted = [self.followers[broker] for broker in self.state.isr if broker in isr and broker in self.followers]
    self._others = [(broker, self.followers[broker]) for broker in removed]


def join_without_the_records(self: InSync, broker_id: int, high_watermark: int, eligibility: Eligibility) -> bool:
    """A mistake: nobody asks whether a follower has what is committed."""
    return broker_id not in self.state.isr and eligibility.may_join(broker_id, self.followers[broker_id].broker_epoch)


def join_although_fenced(self: InSync, broker_id: int, high_watermark: int, eligibility: Eligibility) -> bool:
    """A mistake: a fenced broker may join."""
    return broker_id not in self.state.isr and self.followers[broker_id].end_offset >= high_watermark


@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        ("_classify", count_committed_only),
        ("begin_proposal", forget_at_once),
        ("can_join", join_without_the_records),
        ("can_join", join_although_fenced),
    ],
)
def test_the_model_finds_mistakes(
    name: str, mistake: Callable[..., object], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InSync, name, mistake)
    with pytest.raises(AssertionError):
        for number in range(5000):
            run_model(seed + number)
