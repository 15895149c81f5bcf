"""Random histories of a replicated partition, and that they find followers which are wrong."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.replication import fetcher, following
from ottla.replication.fetcher import Fetcher
from ottla.replication.fetchers import Fetchers
from ottla.replication.following import Append, Verdict
from ottla.replication.partition import Partition
from ottla.storage.epochs import LeaderEpochs
from ottla.wire.fetch import EpochEndOffset, FetchPartition, FetchResponse, PartitionResult
from tests.simulation.replication import run
from tests.unit.storage.truncating import truncate_to


@pytest.mark.parametrize("seed", [*range(6), 9, 197, 837, 3414842777])
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    """In 837 a follower ends where the leader's log starts, within a batch that the follower has in part.

    In 3414842777 one ends there with records that no other replica has had.
    """
    verdict = run(seed)
    assert not verdict.problems
    assert verdict.records > 5


def truncate_to_high_watermark(fetchers: Fetchers, partition: Partition) -> None:
    """A follower that trusts its own high watermark instead of leader epochs (before KIP-101)."""
    state = partition.state
    followed = fetchers._followed.get(partition)
    if (
        state is not None
        and 0 <= state.leader != partition.broker_id
        and (followed is None or followed.leader_epoch != state.leader_epoch)
        and fetchers.truncations.find(partition) is None
    ):
        truncate_to(partition.log, partition.high_watermark.value)
        partition.lower_watermarks(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    FOLLOW(fetchers, partition)


def never_truncate(log: Any, leaders: EpochEndOffset) -> int:
    """A follower that keeps what the leader does not have."""
    return int(log.end_offset)


def forget_the_first_start(epochs: LeaderEpochs, epoch: int, start_offset: int) -> None:
    """An epoch that goes on after another one without records begins there."""
    ASSIGN(epochs, epoch, start_offset)
    if epochs.latest_start < start_offset:
        epochs._cut(len(epochs.entries) - 1)
        epochs._put(epoch, start_offset)


def append_whatever_comes(partition: Partition, leader: int, asked: FetchPartition, result: PartitionResult) -> Verdict:
    """A follower that does not ask whether its leader, the epoch or the end of its log are still the same."""
    if isinstance(result.records, bytes | bytearray | memoryview) and len(result.records):
        return Append(result.records)
    return JUDGE(partition, leader, asked, result)


def apply_every_answer(self: Fetcher, number: int, response: FetchResponse) -> None:
    """A follower that applies an answer although it has asked for something else since, or has not asked."""
    for topic in response.topics:
        for result in topic.partitions:
            followed = self._session.partitions.get((topic.topic_id, result.index))
            if followed is not None:
                followed.asked = followed.asked or FetchPartition(result.index)
                followed.asked_in = min(followed.asked_in, number)
    APPLY(self, number, response)


APPLY, JUDGE = Fetcher._apply, following.judge
ASSIGN = LeaderEpochs.assign
FOLLOW = Fetchers.follow


MUTANTS: dict[str, list[tuple[object, str, Callable[..., Any]]]] = {
    "truncates to the high watermark": [(Fetchers, "follow", truncate_to_high_watermark)],
    "forgets where an epoch began": [(LeaderEpochs, "assign", forget_the_first_start)],
    "never truncates": [(following, "find_divergence", never_truncate)],
    "applies a late answer": [(fetcher, "judge", append_whatever_comes), (Fetcher, "_apply", apply_every_answer)],
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_follower_that_is_wrong_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, attribute, wrong in MUTANTS[name]:
        monkeypatch.setattr(owner, attribute, wrong)
    assert any(run(seed).problems for seed in range(40))
