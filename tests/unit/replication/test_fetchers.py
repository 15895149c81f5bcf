"""Followers copy from a real leader over a simulated network: records, watermarks, divergence, trouble."""

import asyncio
import errno
import logging
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any
from unittest.mock import DEFAULT, patch

import pytest

from ottla.cluster.image import PartitionImage
from ottla.config import BrokerConfig
from ottla.errors import KafkaError
from ottla.replication import fetcher
from ottla.replication.partition import Partition
from ottla.replication.peers import PeerUnavailable
from ottla.replication.throttles import UNLIMITED
from ottla.storage.log import LogSettings
from tests.simulation.loop import simulate
from tests.unit.replication.small_cluster import SmallCluster, read
from tests.unit.storage.truncating import truncate_to

SMALL = LogSettings(segment_bytes=400, index_interval_bytes=100)


def run(main: Coroutine[Any, Any, None]) -> None:
    simulate(main)


def test_followers_copy_records_and_learn_the_high_watermark() -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2, 3)
        cluster.elect(1)
        acknowledged = cluster[1].partition().wait_for_acks(cluster[1].produce(b"a", b"b"), -1)
        assert acknowledged is not None
        await asyncio.wait_for(acknowledged, 1)
        assert read(cluster[2].log()) == read(cluster[3].log()) == [(0, 0, b"a"), (1, 0, b"b")]
        await cluster.wait_for(lambda: cluster[2].partition().high_watermark.value == 2, 1)
        assert cluster[2].fetchers.bytes_in == cluster[1].log().size
        await cluster.close()

    run(main())


def test_records_for_a_replica_that_is_added_are_counted() -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2, 3)
        adding = replace(cluster.elect(1, learners=()), isr=(1, 2), adding=(3,))
        for broker in cluster.brokers.values():
            broker.learn(0, adding)
        cluster[1].produce(b"a", b"b")
        await cluster.wait_for_copies()
        size = cluster[1].log().size
        assert [cluster[each].fetchers.bytes_in for each in (2, 3)] == [size, size]
        assert [cluster[each].fetchers.reassignment_bytes_in for each in (2, 3)] == [0, size]
        assert cluster[1].replicas.meters.reassignment_bytes_out == size
        await cluster[3].fetchers.close()
        assert cluster[3].fetchers.reassignment_bytes_in == size
        await cluster.close()

    run(main())


def test_an_acknowledgement_does_not_wait_for_a_long_poll() -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2, 3)
        cluster.elect(1)
        await asyncio.sleep(5)
        for _ in range(20):
            acknowledged = cluster[1].partition().wait_for_acks(cluster[1].produce(b"a"), -1)
            assert acknowledged is not None
            started = asyncio.get_running_loop().time()
            await acknowledged
            assert asyncio.get_running_loop().time() - started < 0.05
            await asyncio.sleep(0.3)
        await cluster.close()

    run(main())


def test_many_partitions_share_a_session_and_a_connection() -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2, partitions=50)
        for index in range(50):
            cluster.elect(1, index=index)
            cluster[1].produce(b"%d" % index, index=index)
        for index in range(50):
            await cluster.wait_for_copies(index)
        assert cluster[2].fetchers.connection_count == 1
        cluster[1].produce(b"more", index=7)
        await cluster.wait_for_copies(7)
        assert cluster[2].fetchers.max_lag == 0 and cluster[2].fetchers.partition_count == 50
        await cluster.close()

    run(main())


def test_num_replica_fetchers_connections_share_the_partitions() -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2, partitions=20, num_replica_fetchers="3")
        for index in range(20):
            cluster.elect(1, index=index)
            cluster[1].produce(b"%d" % index, index=index)
        for index in range(20):
            await cluster.wait_for_copies(index)
        assert cluster[2].fetchers.connection_count == 3
        await cluster.close()

    run(main())


def test_a_partition_that_comes_later_does_not_wait_for_the_long_poll() -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2, partitions=2, replica_fetch_wait_max_ms="20000")
        cluster.elect(1)
        await asyncio.sleep(1)
        cluster.elect(1, index=1)
        cluster[1].produce(b"late", index=1)
        started = asyncio.get_running_loop().time()
        await cluster.wait_for_copies(1)
        assert asyncio.get_running_loop().time() - started < 0.2
        cluster[1].produce(b"x")
        await cluster.wait_for_copies(0)
        assert asyncio.get_running_loop().time() - started < 0.4
        await cluster.close()

    run(main())


def test_an_idle_follower_sends_one_request_per_long_poll() -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2, partitions=2, replica_fetch_wait_max_ms="500")
        cluster.elect(1)
        await asyncio.sleep(1)
        cluster.elect(1, index=1)
        before = cluster[1].server.traffic.requests
        await asyncio.sleep(10)
        assert cluster[1].server.traffic.requests - before <= 25
        cluster[2].partition().become(PartitionImage((1, 2), (1, 2), 1, 9))  # and the fetchers are not told
        cluster[1].produce(b"a")
        before = cluster[1].server.traffic.requests
        await asyncio.sleep(10)
        assert cluster[1].server.traffic.requests - before <= 25 and cluster[2].log().end_offset == 0
        await cluster.close()

    run(main())


def test_a_follower_that_leaves_copies_nothing_more() -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2)
        cluster.elect(1)
        await asyncio.sleep(1)
        cluster[2].fetchers.leave(cluster[2].partition())
        cluster[2].fetchers.leave(cluster[2].partition())
        cluster[1].produce(b"a")
        await asyncio.sleep(2)
        assert cluster[2].log().end_offset == 0 and cluster[2].fetchers.connection_count == 0
        cluster[2].fetchers.follow(cluster[2].partition())
        cluster[2].fetchers.follow(cluster[2].partition())
        await cluster.wait_for_copies()
        await cluster.close()

    run(main())


def test_the_log_start_follows_the_leaders() -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2)
        cluster.elect(1)
        for _ in range(5):
            cluster[1].produce(b"a", b"b")
        await cluster.wait_for_copies()
        await cluster.wait_for(lambda: cluster[1].partition().high_watermark.value == 10)
        cluster[1].partition().delete_records(6)
        await cluster.wait_for(lambda: cluster[2].log().log_start_offset == 6, 1)
        await cluster.close()

    run(main())


def test_the_leader_learns_the_log_start_of_a_follower_whose_retention_was_first() -> None:
    # DeleteRecords answers when the leader knows that no replica has the records. A follower that has none of them
    # since its own retention does not move its log start then, and tells where it is all the same.
    async def main() -> None:
        cluster = SmallCluster(1, 2)
        cluster.elect(1)
        cluster[1].produce(*[b"a"] * 10)
        await cluster.wait_for_copies()
        await cluster.wait_for(lambda: cluster[1].partition().high_watermark.value == 10)
        cluster[2].log().advance_log_start(10)
        await asyncio.sleep(2)
        for start in (4, 6):
            cluster[1].partition().delete_records(start)
            await cluster.wait_for(lambda: cluster[1].partition().low_watermark([2]) == start, 1)  # noqa: B023
        assert cluster[2].log().log_start_offset == 10
        await cluster.close()

    run(main())


# Divergence


def test_a_follower_that_restarts_and_becomes_leader_keeps_acknowledged_records() -> None:
    """KIP-101: a follower must not truncate to its high watermark, which lags behind the leader's."""

    async def main() -> None:
        cluster = SmallCluster(1, 2)
        cluster.elect(1)
        acknowledged = cluster[1].partition().wait_for_acks(cluster[1].produce(b"a"), -1)
        assert acknowledged is not None
        await acknowledged
        cluster[2].die()
        cluster[2].restart(high_watermark=0)  # the checkpoint is older than the acknowledgement
        cluster[2].learn(0, cluster.states[0])
        await asyncio.sleep(0.5)
        cluster[1].die()
        cluster.elect(2, isr=(2,), learners=(2,))
        assert read(cluster[2].log()) == [(0, 0, b"a")]
        await cluster.close()

    run(main())


def test_an_old_leader_loses_what_nobody_copied() -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2, settings=SMALL)
        cluster.elect(1)
        cluster[1].produce(b"a", b"b")
        await cluster.wait_for_copies()
        cluster.network.partition("b1", "b2")
        for number in range(20):
            cluster[1].produce(b"lost %d" % number)
        waiting = cluster[1].partition().wait_for_acks(cluster[1].produce(b"lost"), -1)
        assert waiting is not None
        cluster.elect(2, learners=(2,))
        cluster[2].produce(b"kept", b"too")
        cluster.network.heal_all()
        cluster[1].learn(0, cluster.states[0])
        with pytest.raises(Exception, match="NOT_LEADER_OR_FOLLOWER"):
            await waiting
        await cluster.wait_for_copies()
        assert read(cluster[1].log()) == read(cluster[2].log())
        assert read(cluster[1].log()) == [(0, 0, b"a"), (1, 0, b"b"), (2, 1, b"kept"), (3, 1, b"too")]
        assert cluster[1].fetchers.truncations.count == 1
        await cluster.close()

    run(main())


def test_logs_that_diverged_in_two_fast_failovers_become_equal() -> None:
    """KIP-279: each replica has records of an epoch that the other does not have."""

    async def main() -> None:
        cluster = SmallCluster(1, 2, 3)
        cluster.elect(1)
        cluster[1].produce(b"common")
        await cluster.wait_for_copies()
        for one, other in ((1, 2), (1, 3), (2, 3)):
            cluster.network.partition(f"b{one}", f"b{other}")
        for number in range(4):
            cluster[1].produce(b"of 1: %d" % number)  # epoch 0
        cluster.elect(2, isr=(2,), learners=(2,))
        for number in range(2):
            cluster[2].produce(b"of 2: %d" % number)  # epoch 1
        cluster.elect(3, isr=(3,), learners=(3,))
        for number in range(3):
            cluster[3].produce(b"of 3: %d" % number)  # epoch 2
        cluster.elect(1, isr=(1,), learners=(1,))
        for number in range(2):
            cluster[1].produce(b"of 1 again: %d" % number)  # epoch 3
        state = cluster.elect(3, learners=())  # epoch 4
        cluster.network.heal_all()
        for broker in (1, 2, 3):
            cluster[broker].learn(0, state)
        await cluster.wait_for_copies()
        cluster[3].produce(b"end")
        await cluster.wait_for_copies()
        expected = [(0, 0, b"common"), *((1 + number, 2, b"of 3: %d" % number) for number in range(3)), (4, 4, b"end")]
        assert read(cluster[1].log()) == read(cluster[2].log()) == read(cluster[3].log()) == expected
        await cluster.close()

    run(main())


def test_a_late_answer_of_an_earlier_leader_is_not_applied() -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2, 3)
        cluster.elect(1)
        cluster[1].produce(b"a")
        await cluster.wait_for_copies()
        await asyncio.sleep(1)
        cluster.network.partition("b1", "b2")
        cluster.network.partition("b1", "b3")
        cluster[1].produce(b"of the old leader")  # the answers are held back
        await asyncio.sleep(0.1)
        state = cluster.elect(3, learners=(3,))
        cluster[3].produce(b"of the new leader")
        cluster[2].partition().become(state)  # and the fetchers do not know yet
        cluster.network.heal_all()
        await asyncio.sleep(1)
        assert cluster[2].log().end_offset == 1
        cluster[2].fetchers.follow(cluster[2].partition())
        cluster[1].learn(0, state)
        await cluster.wait_for_copies()
        assert [value for _, _, value in read(cluster[2].log())] == [b"a", b"of the new leader"]
        await cluster.close()

    run(main())


def test_an_answer_from_an_earlier_term_of_the_same_leader_is_not_applied() -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2, 3, partitions=2)
        cluster.elect(1, index=1)  # keeps the connection from 2 to 1 open
        cluster.elect(1)
        cluster[1].produce(b"common")
        await cluster.wait_for_copies()
        await asyncio.sleep(1)
        cluster.network.partition("b1", "b2")
        cluster.network.partition("b1", "b3")
        cluster[1].produce(b"lost")  # the answer is held back on its way to 2
        await asyncio.sleep(0.1)
        state = cluster.elect(3, learners=(3, 2))
        await asyncio.sleep(0.5)
        cluster[1].learn(0, state)
        await asyncio.sleep(0.1)
        truncate_to(cluster[1].log(), 1)  # as its leader 3 would have it do, if it were not cut off
        cluster.elect(1)
        await asyncio.sleep(0.1)
        with patch.object(Partition, "append_as_follower", autospec=True) as append:
            cluster.network.heal_all()
            await asyncio.sleep(1)
            assert not append.called
        await cluster.close()

    run(main())


def test_a_follower_below_the_leaders_start_begins_anew() -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2, settings=SMALL)
        cluster.elect(1)
        cluster[1].produce(b"old")
        await cluster.wait_for_copies()
        cluster[2].fetchers.leave(cluster[2].partition())
        state = cluster.elect(1, isr=(1,), learners=(1,))
        for number in range(30):
            cluster[1].produce(b"%d" % number)
        cluster[1].partition().delete_records(20)
        cluster[2].learn(0, state)
        await cluster.wait_for_copies()
        assert cluster[2].log().log_start_offset == 20 and read(cluster[2].log()) == read(cluster[1].log())
        assert cluster[2].partition().high_watermark.value >= 20
        await cluster.close()

    run(main())


@pytest.mark.parametrize("step", ["ask_ranges", "judge_range"])
def test_an_unexpected_error_after_out_of_range_leaves_no_partition_behind(step: str) -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2, partitions=3, settings=SMALL)
        for index in range(3):
            cluster.elect(1, index=index, isr=(1,), learners=(1,))
            for number in range(30):
                cluster[1].produce(b"%d" % number, index=index)
            cluster[1].partition(index).delete_records(20)
        first_fails = [ValueError("nobody has thought of it"), *[DEFAULT] * 9]
        with patch.object(fetcher, step, side_effect=first_fails, wraps=getattr(fetcher, step)) as called:
            for index in range(3):
                cluster[2].learn(index, cluster.states[index])
            for index in range(3):
                await cluster.wait_for_copies(index)
            assert called.call_count > 1
        await cluster.close()

    run(main())


def test_a_follower_above_the_leaders_end_truncates() -> None:
    """KAFKA-3924: the broker must not halt. The leader has lost its records, in an unclean election for instance."""

    async def main() -> None:
        for start in (0, 4):
            cluster = SmallCluster(1, 2)
            cluster.elect(2, isr=(2,), learners=(2,))
            for number in range(10):
                cluster[2].produce(b"%d" % number)
            if start:
                cluster[2].partition().delete_records(start)
            cluster.elect(1)
            cluster[1].produce(b"new", b"er")
            await cluster.wait_for_copies()
            assert read(cluster[2].log()) == [(0, 1, b"new"), (1, 1, b"er")]
            assert cluster[2].partition().high_watermark.value <= 2
            await cluster.close()

    run(main())


def test_an_empty_follower_above_the_leaders_end_truncates() -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2)
        cluster.elect(2, isr=(2,), learners=(2,))
        for number in range(10):
            cluster[2].produce(b"%d" % number)
        cluster[2].partition().delete_records(10)
        cluster.elect(1)
        cluster[1].produce(b"new")
        await cluster.wait_for_copies()
        assert read(cluster[2].log()) == [(0, 1, b"new")]
        await cluster.close()

    run(main())


def test_records_of_an_epoch_that_the_leader_never_heard_of_are_truncated() -> None:
    """The metadata was restored from an old copy, and leader epochs begin again at a lower number."""

    async def main() -> None:
        cluster = SmallCluster(1, 2)
        cluster.elect(2, epoch=9, isr=(2,), learners=(2,))
        cluster[2].produce(b"a")
        cluster.elect(1, epoch=3)
        for number in range(4):
            cluster[1].produce(b"%d" % number)
        await cluster.wait_for_copies()
        assert read(cluster[2].log()) == read(cluster[1].log())
        await cluster.close()

    run(main())


# Trouble


def test_a_leader_that_dies_is_asked_again_when_it_is_back() -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2)
        cluster.elect(1)
        cluster[1].produce(b"a")
        await cluster.wait_for_copies()
        cluster[1].die()
        await asyncio.sleep(3)
        assert cluster[2].fetchers.connection_count == 0
        cluster[1].restart()
        cluster[1].learn(0, cluster.states[0])
        cluster[1].produce(b"b")
        await cluster.wait_for_copies()
        await cluster.close()

    run(main())


def test_resets_while_records_are_copied_lose_and_repeat_nothing() -> None:
    async def main(seed: int) -> None:
        cluster = SmallCluster(1, 2, seed=seed, settings=SMALL)
        cluster.elect(1)
        for number in range(60):
            cluster[1].produce(b"%d" % number)
            await asyncio.sleep(0.003)
            if number % 5 == 0:
                cluster.network.reset_connections("b1")
        await cluster.wait_for_copies()
        assert [value for _, _, value in read(cluster[2].log())] == [b"%d" % number for number in range(60)]
        await cluster.close()

    for seed in range(5):
        run(main(seed))


def test_partitions_with_errors_back_off_and_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    # The log tells of an election that the leader does not know of yet only if that lasts.
    async def main() -> None:
        cluster = SmallCluster(1, 2, partitions=2)
        cluster.elect(1)
        cluster.elect(1, index=1, learners=(2,))  # the leader does not know yet that it leads
        await asyncio.sleep(0.5)
        assert "pauses" not in caplog.text
        await asyncio.sleep(5)
        assert caplog.text.count("copying from broker 1 pauses: NOT_LEADER_OR_FOLLOWER") == 1
        assert cluster[2].fetchers.failed_count == 1
        cluster[1].produce(b"a")
        await cluster.wait_for_copies()
        cluster[1].learn(1, cluster.states[1])
        cluster[1].produce(b"b", index=1)
        await cluster.wait_for_copies(1)
        assert cluster[2].fetchers.failed_count == 0
        await cluster.close()

    caplog.set_level(logging.INFO)
    run(main())


def test_a_full_disk_is_retried_until_there_is_room() -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2)
        cluster.elect(1)
        await asyncio.sleep(1)
        cluster[2].disk.fail("append", errno.ENOSPC, "*.log", times=None)
        cluster[1].produce(b"a")
        await asyncio.sleep(5)
        assert cluster[2].log().end_offset == 0 and not cluster[2].log().has_failed
        cluster[2].disk.heal()
        await cluster.wait_for_copies()
        await cluster.close()

    run(main())


def test_a_full_disk_delays_a_truncation() -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2)
        cluster.elect(1, isr=(1,), learners=(1,))
        cluster[1].produce(b"lost")
        cluster[1].disk.fail("append", errno.ENOSPC, "*leader-epoch-checkpoint.tmp", times=None)
        cluster.elect(2)
        cluster[2].produce(b"kept")
        await asyncio.sleep(3)
        assert cluster[1].log().end_offset == 0 and not cluster[1].log().has_failed
        cluster[1].disk.heal()
        await cluster.wait_for_copies()
        assert read(cluster[1].log()) == [(0, 1, b"kept")]
        await cluster.close()

    run(main())


@pytest.mark.parametrize(
    ("operation", "pattern"),
    [("rename", "*/*[05].log"), ("rename", "*/*"), ("unlink", "*.snapshot"), ("truncate", "*.log")],
)
def test_a_truncation_waits_in_its_middle_for_room(
    operation: str, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Meanwhile the replica is read up to its new end, nothing can be appended, and it does not hold up others.
    async def main() -> None:
        cluster = SmallCluster(1, 2, settings=SMALL)
        cluster.elect(1)
        for number in range(5):
            cluster[1].produce(b"%d" % number)
        await cluster.wait_for_copies()
        await cluster.wait_for(lambda: cluster[1].partition().high_watermark.value == 5)
        cluster.elect(1, isr=(1,), learners=(1,))
        cluster[2].fetchers.leave(cluster[2].partition())
        for _ in range(5, 40):
            cluster[1].produce(b"lost")
        await asyncio.sleep(1)  # what is rolled is flushed
        noted: list[Partition] = []
        monkeypatch.setattr(Partition, "note_refusal", lambda partition, cause: noted.append(partition))
        cluster[1].disk.fail(operation, errno.ENOSPC, pattern, times=None)
        cluster.elect(2)
        cluster[2].produce(b"kept")
        await asyncio.sleep(5)
        partition = cluster[1].partition()
        assert not partition.log.has_failed and cluster[1].fetchers.truncations.find(partition) is not None
        assert partition.log.end_offset == 5 and read(partition.log) == read(cluster[2].log())[:5]
        assert partition in noted, "others may lead, and acknowledgements do not wait for this replica"
        with pytest.raises(KafkaError):
            partition.log.append_as_follower(b"", 0)
        cluster[1].disk.heal()
        await cluster.wait_for_copies()
        assert read(cluster[1].log()) == read(cluster[2].log())
        await cluster.close()

    run(main())


@pytest.mark.parametrize("operation", ["reopen", "read"])
def test_a_truncation_waits_for_a_descriptor(operation: str) -> None:
    # It has to read where the batches in a sealed segment begin.
    async def main() -> None:
        cluster = SmallCluster(1, 2, settings=SMALL)
        cluster.elect(1)
        for number in range(5):
            cluster[1].produce(b"%d" % number)
        await cluster.wait_for_copies()
        cluster.elect(1, isr=(1,), learners=(1,))
        cluster[2].fetchers.leave(cluster[2].partition())
        for _ in range(5, 40):
            cluster[1].produce(b"lost")
        for segment in cluster[1].log().segments:
            segment.unload_indexes()
        before = cluster[1].log().end_offset
        cluster[1].disk.fail(operation, errno.EMFILE, "*/0*", times=None)
        cluster.elect(2)
        await asyncio.sleep(5)
        assert cluster[1].log().end_offset == before and not cluster[1].log().has_failed
        cluster[1].disk.heal()
        cluster[2].produce(b"kept")
        await cluster.wait_for_copies()
        assert read(cluster[1].log()) == read(cluster[2].log())
        await cluster.close()

    run(main())


def test_a_new_beginning_makes_the_room_that_it_needs() -> None:
    # The disk is full as long as the records that are dropped have room on it.
    async def main() -> None:
        cluster = SmallCluster(1, 2, settings=SMALL)
        cluster.elect(1)
        for number in range(20):
            cluster[1].produce(b"%d" % number)
        await cluster.wait_for(lambda: cluster[1].partition().high_watermark.value == 20)
        cluster[2].fetchers.leave(cluster[2].partition())
        directory, disk = cluster[2].log().directory, cluster[2].disk
        for number in range(20, 40):
            cluster[1].produce(b"%d" % number)
        cluster.elect(1, isr=(1,), learners=(1,))
        cluster[1].partition().delete_records(35)
        for operation in ("create", "append"):
            disk.fail(operation, errno.ENOSPC, times=None)
        cluster[2].learn(0, cluster.states[0])
        await cluster.wait_for(lambda: not any(".log" in name for name in disk.list(directory)))
        disk.heal()
        await cluster.wait_for_copies()
        assert [offset for offset, _, _ in read(cluster[2].log())] == [35, 36, 37, 38, 39]
        await cluster.close()

    run(main())


def test_a_disk_that_fails_before_a_new_beginning_takes_the_log_out_of_service() -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2)
        failed: list[str] = []
        cluster[2].log().on_disk_failure = failed.append
        cluster.elect(1, isr=(1,), learners=(1,))
        cluster[1].produce(b"a")
        cluster[1].produce(b"b")
        cluster[1].partition().delete_records(2)
        cluster[2].disk.fail("create", errno.EIO, times=None)
        cluster[2].learn(0, cluster.states[0])
        await cluster.wait_for(lambda: failed, 5)
        assert cluster[2].log().has_failed
        await cluster.close()

    run(main())


def test_a_disk_that_fails_in_a_truncation_takes_the_log_out_of_service() -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2)
        cluster.elect(1, isr=(1,), learners=(1,))
        cluster[1].produce(b"lost")
        failed: list[str] = []
        cluster[1].log().on_disk_failure = failed.append
        cluster[1].disk.fail("fsync", errno.EIO, times=None)
        cluster.elect(2)
        cluster[2].produce(b"kept")
        await cluster.wait_for(lambda: failed, 5)
        assert cluster[1].log().has_failed
        await cluster.close()

    run(main())


def test_a_damaged_answer_is_not_appended_and_asked_for_again() -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2)
        cluster.elect(1)
        cluster[1].produce(b"first")
        await cluster.wait_for_copies()
        cluster[2].fetchers.leave(cluster[2].partition())
        position = cluster[1].log().size
        cluster[1].produce(b"damaged")
        file = cluster[1].log().segments[-1].file
        right = file.read_at(position + 70, 1)
        file.write_at(position + 70, bytes([right[0] ^ 1]))
        cluster[2].fetchers.follow(cluster[2].partition())
        await asyncio.sleep(3)
        assert cluster[2].log().end_offset == 1 and cluster[2].fetchers.failed_count == 1
        file.write_at(position + 70, right)
        await cluster.wait_for_copies()
        await cluster.close()

    run(main())


def test_with_flush_messages_1_a_fetch_says_that_records_are_on_disk() -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2, topic={"flush.messages": "1"})
        cluster.elect(1)
        for number in range(10):
            acknowledged = cluster[1].partition().wait_for_acks(cluster[1].produce(b"%d" % number), -1)
            assert acknowledged is not None
            await acknowledged
            assert cluster[2].log().recovery_point == number + 1
        await cluster.close()

    run(main())


def test_a_throttled_follower_stays_below_its_rate() -> None:
    async def main() -> None:
        topic = {"follower.replication.throttled.replicas": "*"}
        cluster = SmallCluster(
            1, 2, partitions=2, topic=topic, follower_replication_throttled_rate="10000", replica_fetch_max_bytes="5000"
        )
        cluster.elect(1, isr=(1,))
        started = asyncio.get_running_loop().time()
        for _ in range(50):
            cluster[1].produce(b"x" * 2000)
        await cluster.wait_for(lambda: cluster[2].log().end_offset == 50)
        assert 8 < asyncio.get_running_loop().time() - started < 13
        cluster.elect(1, isr=(1, 2))  # an in-sync replica is not held back
        started = asyncio.get_running_loop().time()
        for _ in range(50):
            cluster[1].produce(b"x" * 2000)
        await cluster.wait_for_copies()
        assert asyncio.get_running_loop().time() - started < 3
        await cluster.close()

    run(main())


@pytest.mark.parametrize("rate", ["100000000", str(UNLIMITED)])
def test_a_throttled_follower_notices_that_its_rate_was_raised_or_removed(rate: str) -> None:
    # A rate far too low, which the first records exceed for hours.
    async def main() -> None:
        topic = {"follower.replication.throttled.replicas": "*"}
        cluster = SmallCluster(1, 2, partitions=2, topic=topic, follower_replication_throttled_rate="1")
        cluster.elect(1, isr=(1,))
        cluster[1].produce(*[b"x" * 10_000] * 3)
        await cluster.wait_for(lambda: cluster[2].log().end_offset == 3)
        cluster[1].produce(b"more")
        await asyncio.sleep(100)
        assert cluster[2].log().end_offset == 3
        cluster[2].config = BrokerConfig.of({"node.id": "2", "follower.replication.throttled.rate": rate})
        changed = asyncio.get_running_loop().time()
        await cluster.wait_for(lambda: cluster[2].log().end_offset == 4)
        assert asyncio.get_running_loop().time() - changed < 3
        await cluster.close()

    run(main())


def test_a_throttled_follower_that_joins_the_isr_is_held_back_no_more() -> None:
    # It had everything when it was held back, so the leader added it. Producers wait for it then.
    async def main() -> None:
        topic = {"follower.replication.throttled.replicas": "*"}
        cluster = SmallCluster(1, 2, partitions=2, topic=topic, follower_replication_throttled_rate="1")
        state = cluster.elect(1, isr=(1,))
        cluster[1].produce(*[b"x" * 10_000] * 3)
        await cluster.wait_for(lambda: cluster[2].log().end_offset == 3)
        await asyncio.sleep(10)
        for broker_id in (1, 2):
            cluster[broker_id].learn(0, replace(state, isr=(1, 2), partition_epoch=state.partition_epoch + 1))
        acknowledged = cluster[1].partition().wait_for_acks(cluster[1].produce(b"more"), -1)
        assert acknowledged is not None
        joined = asyncio.get_running_loop().time()
        await acknowledged
        assert asyncio.get_running_loop().time() - joined < 3
        await cluster.close()

    run(main())


def test_a_leader_at_an_unknown_address_is_waited_for() -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2)
        cluster.image._brokers.pop(1)
        cluster.elect(1)
        await asyncio.sleep(2)
        with pytest.raises(PeerUnavailable):
            await cluster[2].peers.open(1)
        assert cluster[2].fetchers.connection_count == 0
        await cluster.close()

    run(main())


def test_a_leader_knows_what_every_replica_has_copied() -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2, 3)
        cluster.elect(1, isr=(1, 2), learners=(1, 2))
        cluster[1].produce(b"a")
        await cluster.wait_for(lambda: cluster[1].partition().high_watermark.value == 1)
        assert cluster[1].partition().copied_by_all == 0  # 3 is not in sync, and has not fetched
        assert cluster[2].partition().copied_by_all == 0  # a follower does not know
        cluster[3].learn(0, cluster.states[0])
        await cluster.wait_for(lambda: cluster[1].partition().copied_by_all == 1)
        await cluster.close()

    run(main())
