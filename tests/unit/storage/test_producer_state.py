"""Producer states of a partition: idempotence and transactions."""

import tracemalloc

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch
from ottla.storage import producer_snapshot
from ottla.storage.log import Log, LogSettings
from ottla.storage.producer_snapshot import CorruptSnapshot
from ottla.storage.producer_state import PRODUCERS_MAX, TRIMMED_EVERY, ProducerStates
from tests.unit.storage.logs import (
    DIRECTORY,
    NOW,
    append,
    batch_of,
    new_disk,
    new_log,
    open_log,
    overwrite,
    path,
)

LAST = 2**31 - 1
DAY = 24 * 60 * 60 * 1000


def code_of(log: Log, data: bytearray) -> ErrorCode:
    end = log.end_offset
    with pytest.raises(KafkaError) as refused:
        append(log, data)
    assert log.end_offset == end
    return refused.value.code


def end_transaction(log: Log, producer_id: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0) -> int:
    marker = batch.encode_control(producer_id, epoch, commit, coordinator_epoch, NOW)
    return append(log, marker).base_offset


def test_each_of_the_last_five_batches_is_recognised() -> None:
    # A retry is answered with the first offset and written once. The sixth oldest batch is no longer recognised.
    log = new_log(new_disk())
    for sequence in range(0, 12, 2):
        append(log, batch_of(b"a", b"b", producer_id=9, sequence=sequence))
    for sequence in range(2, 12, 2):
        again = append(log, batch_of(b"a", b"b", producer_id=9, sequence=sequence))
        assert again.is_duplicate and (again.base_offset, again.last_offset) == (sequence, sequence + 1)
    assert code_of(log, batch_of(b"a", b"b", producer_id=9, sequence=0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.end_offset == 12


def test_a_gap_or_an_overlap_is_refused() -> None:
    log = new_log(new_disk())
    append(log, batch_of(b"a", b"b", producer_id=9, sequence=0))
    for data in (
        batch_of(b"c", producer_id=9, sequence=3),
        batch_of(b"c", producer_id=9, sequence=1),
        batch_of(b"c", producer_id=9, sequence=0),
    ):
        assert code_of(log, data) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, batch_of(b"c", producer_id=9, sequence=2)).base_offset == 2


def test_sequences_wrap_to_zero() -> None:
    # After 2^31-1 comes 0, between batches and inside of one.
    log = new_log(new_disk())
    append(log, batch_of(b"a", producer_id=9, sequence=LAST))
    append(log, batch_of(b"b", producer_id=9, sequence=0))
    log = new_log(new_disk())
    append(log, batch_of(b"a", producer_id=9, sequence=LAST - 1))
    append(log, batch_of(b"b", b"c", b"d", producer_id=9, sequence=LAST))
    assert append(log, batch_of(b"b", b"c", b"d", producer_id=9, sequence=LAST)).is_duplicate
    assert append(log, batch_of(b"e", producer_id=9, sequence=2)).base_offset == 4
    log.close()
    log = open_log(log.files.disk, clean=True)  # type: ignore[arg-type]
    assert append(log, batch_of(b"e", producer_id=9, sequence=2)).is_duplicate


def test_an_old_epoch_is_fenced_and_a_new_one_begins_at_zero() -> None:
    # KIP-360: a producer that begins again raises its epoch.
    log = new_log(new_disk())
    append(log, batch_of(b"a", producer_id=9, epoch=3, sequence=0))
    assert code_of(log, batch_of(b"b", producer_id=9, epoch=2, sequence=1)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(log, batch_of(b"b", producer_id=9, epoch=4, sequence=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, batch_of(b"b", producer_id=9, epoch=4, sequence=0))
    assert code_of(log, batch_of(b"a", producer_id=9, epoch=3, sequence=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert append(log, batch_of(b"b", producer_id=9, epoch=4, sequence=0)).is_duplicate


def test_an_unknown_producer_may_continue_with_any_sequence() -> None:
    # Its state may have been deleted with old segments. Refusing it would stop a producer that did nothing wrong.
    log = new_log(new_disk())
    assert append(log, batch_of(b"a", producer_id=9, sequence=41)).base_offset == 0
    assert append(log, batch_of(b"b", producer_id=9, sequence=42)).base_offset == 1


def test_batches_of_a_coordinator_have_no_sequence() -> None:
    # Offsets committed in a transaction carry a producer id, and only their epoch is checked.
    log = new_log(new_disk())
    for _ in range(3):
        append(log, batch_of(b"offset", producer_id=9, epoch=1, transactional=True))
    assert code_of(log, batch_of(b"offset", producer_id=9, transactional=True)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.end_offset == 3


def test_producers_expire() -> None:
    # producer.id.expiration.ms after the last batch the producer is forgotten, unless its transaction is open.
    log = new_log(new_disk())
    append(log, batch_of(b"a", producer_id=1, sequence=0, timestamp=NOW))
    append(log, batch_of(b"a", producer_id=2, sequence=0, timestamp=NOW + 10))
    append(log, batch_of(b"a", producer_id=3, sequence=0, timestamp=NOW, transactional=True))
    assert log.expire_producers(NOW + DAY - 1) == 0
    assert log.expire_producers(NOW + DAY) == 1
    assert sorted(log.producers.producers) == [2, 3]
    log.close()
    log = open_log(log.files.disk, clean=True, now_ms=NOW + 10 * DAY)  # type: ignore[arg-type]
    assert sorted(log.producers.producers) == [3]


def test_state_survives_a_clean_restart() -> None:
    disk = new_disk()
    log = new_log(disk)
    append(log, batch_of(b"a", producer_id=1, epoch=2, sequence=0))
    append(log, batch_of(b"b", b"c", producer_id=1, epoch=2, sequence=1))
    append(log, batch_of(b"d", producer_id=4, sequence=7, transactional=True))
    log.close()
    log = open_log(disk, clean=True)
    assert append(log, batch_of(b"b", b"c", producer_id=1, epoch=2, sequence=1)).base_offset == 1
    assert log.producers.first_unstable_offset == 3
    assert code_of(log, batch_of(b"x", producer_id=1, epoch=2, sequence=9)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_all_five_batches_survive_a_clean_restart() -> None:
    # A client with five requests in flight must be able to retry all of them at a broker that was restarted.
    disk = new_disk()
    log = new_log(disk)
    for sequence in range(8):
        append(log, batch_of(b"v", producer_id=1, sequence=sequence))
    log.close()
    log = open_log(disk, clean=True)
    for sequence in range(3, 8):
        assert append(log, batch_of(b"v", producer_id=1, sequence=sequence)).base_offset == sequence
    assert log.end_offset == 8


def test_a_retry_of_a_compacted_batch_is_recognised() -> None:
    # After a restart the snapshot has only the producer's last batch, and compaction has removed the ones before it.
    # The client, whose answers were lost, must not be told that it skipped something: the batch was in the log.
    disk = new_disk()
    log = new_log(disk)
    for sequence in range(6):
        append(log, batch_of(b"%d" % sequence, producer_id=9, sequence=sequence))
        if sequence == 4:
            log.roll(NOW)
    log.close()
    file = disk.open(path(0, ".log"))
    content = file.read_at(0, file.size // 5 * 2)
    overwrite(disk, path(0, ".log"), content)  # batches 2 to 4 are gone
    log = open_log(disk, clean=True)
    for sequence in (2, 3, 4):
        assert code_of(log, batch_of(b"x", producer_id=9, sequence=sequence)) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    overlap = batch_of(b"x", b"y", producer_id=9, sequence=4)
    assert code_of(log, overlap) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, batch_of(b"5", producer_id=9, sequence=5)).is_duplicate
    assert code_of(log, batch_of(b"x", producer_id=9, sequence=7)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, batch_of(b"6", producer_id=9, sequence=6)).base_offset == 6


def test_a_snapshot_is_kept_per_segment_and_at_the_end() -> None:
    disk = new_disk()
    log = new_log(disk, LogSettings(segment_bytes=300))
    for sequence in range(12):
        append(log, batch_of(b"v", producer_id=1, sequence=sequence))
    bases = [segment.base_offset for segment in log.segments]
    assert snapshots(disk.list(DIRECTORY)) == bases[1:]
    log.close()
    assert snapshots(disk.list(DIRECTORY)) == [*bases[1:], 12]
    log = open_log(disk, LogSettings(segment_bytes=300), clean=True)
    for sequence in range(12, 20):
        append(log, batch_of(b"v", producer_id=1, sequence=sequence))
    bases = [segment.base_offset for segment in log.segments]
    assert snapshots(disk.list(DIRECTORY)) == bases[1:]
    log.advance_log_start(bases[2])
    log.drop_segments(bases[2])
    assert snapshots(disk.list(DIRECTORY)) == bases[2:]


def snapshots(names: object) -> list[int]:
    assert isinstance(names, list)
    return [int(name[:20]) for name in names if name.endswith(".snapshot")]


def test_a_damaged_snapshot_is_ignored() -> None:
    states = ProducerStates()
    header = batch.read_header(batch_of(b"a", b"b", producer_id=6, epoch=1, sequence=LAST, transactional=True))
    states.replay(header, 40)
    data = producer_snapshot.encode(states.producers.values())
    (producer,) = producer_snapshot.decode(data)
    assert (producer.producer_id, producer.epoch, producer.transaction_start) == (6, 1, 40)
    assert producer.batches[0] == (LAST, 0, 40, 41, NOW + 1)
    for position in range(len(data)):
        for harmed in (data[:position], data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]):
            with pytest.raises(CorruptSnapshot):
                producer_snapshot.decode(harmed)
    with pytest.raises(CorruptSnapshot):
        producer_snapshot.decode(data + b"\0")


def test_open_transactions_hold_the_last_stable_offset() -> None:
    # The last stable offset stops at the first open transaction, and at an ended one until its marker is replicated.
    log = new_log(new_disk())
    append(log, batch_of(b"plain"))
    append(log, batch_of(b"a", producer_id=1, sequence=0, transactional=True))
    append(log, batch_of(b"b", producer_id=2, sequence=0, transactional=True))
    assert [log.last_stable_offset(3), log.last_stable_offset(0)] == [1, 0]
    end_transaction(log, 1, commit=True)
    assert log.last_stable_offset(3) == 1
    assert log.last_stable_offset(4) == 2
    end_transaction(log, 2, commit=False)
    assert log.producers.first_unstable_offset == 2
    assert log.last_stable_offset(5) == 5
    log.advance_log_start(5)
    log.drop_segments(5)
    assert log.last_stable_offset(4) == 5


def test_a_plain_batch_inside_a_transaction_is_refused() -> None:
    log = new_log(new_disk())
    append(log, batch_of(b"a", producer_id=1, sequence=0, transactional=True))
    assert code_of(log, batch_of(b"b", producer_id=1, sequence=1)) is ErrorCode.INVALID_TXN_STATE


def test_markers_of_old_epochs_and_old_coordinators_are_refused() -> None:
    log = new_log(new_disk())
    append(log, batch_of(b"a", producer_id=1, epoch=4, sequence=0, transactional=True))
    marker = batch.encode_control(1, 3, True, 0, NOW)
    assert code_of(log, marker) is ErrorCode.INVALID_PRODUCER_EPOCH
    end_transaction(log, 1, commit=True, epoch=4, coordinator_epoch=7)
    marker = batch.encode_control(1, 4, True, 6, NOW)
    assert code_of(log, marker) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


@pytest.mark.parametrize("restart", ["no", "clean", "crash", "index lost", "index damaged"])
def test_aborted_transactions_are_listed_over_segments(restart: str) -> None:
    # Transactions overlap and cross segments. They are listed after a restart, and with a rebuilt index.
    disk = new_disk()
    settings = LogSettings(segment_bytes=300)
    log = new_log(disk, settings)
    sequences = [0, 0, 0, 0]

    def write(producer: int) -> None:
        append(log, batch_of(b"v", producer_id=producer, sequence=sequences[producer], transactional=True))
        sequences[producer] += 1

    for producer in (1, 2, 1, 3, 2, 1):
        write(producer)
    assert end_transaction(log, 1, commit=False) == 6
    for producer in (2, 1, 3):
        write(producer)
    assert end_transaction(log, 2, commit=True) == 10
    assert end_transaction(log, 3, commit=False) == 11
    assert end_transaction(log, 1, commit=False) == 12
    assert len(log.segments) > 3
    if restart != "no":
        log.close() if restart != "crash" else disk.crash(lose_unsynced=False)
        for name in disk.list(DIRECTORY):
            if restart == "index lost" and name.endswith(("index",)):
                disk.unlink(f"{DIRECTORY}/{name}")
            if restart == "index damaged" and name.endswith(".txnindex"):
                overwrite(disk, f"{DIRECTORY}/{name}", b"junk")
        log = open_log(disk, settings, clean=restart != "crash")

    def listed(from_offset: int, up_to: int) -> set[tuple[int, int]]:
        return {(found.producer_id, found.first_offset) for found in log.aborted_transactions(from_offset, up_to)}

    assert listed(0, 13) == {(1, 0), (3, 3), (1, 8)}
    assert listed(0, 3) == {(1, 0)}
    assert listed(7, 8) == {(3, 3)}
    assert listed(12, 13) == {(1, 8)}
    assert log.last_stable_offset(13) == 13


def test_a_failed_index_write_fails_the_marker() -> None:
    # The marker and its entry in the index are appended together or not at all.
    disk = new_disk()
    log = new_log(disk)
    append(log, batch_of(b"a", producer_id=1, sequence=0, transactional=True))
    disk.fail("append", 28, "*.txnindex")
    assert code_of(log, batch.encode_control(1, 0, False, 0, NOW)) is ErrorCode.KAFKA_STORAGE_ERROR
    disk.fail("append", 28, "*.log")
    assert code_of(log, batch.encode_control(1, 0, False, 0, NOW)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.producers.first_unstable_offset == 0 and log.aborted_transactions(0, 2) == []
    end_transaction(log, 1, commit=False)
    assert [entry.first_offset for entry in log.aborted_transactions(0, 2)] == [0]
    assert disk.size(path(0, ".txnindex")) == 34


@pytest.mark.parametrize("operation", ["create", "append"])
def test_a_follower_without_room_for_the_index_goes_on_when_there_is_room(operation: str) -> None:
    # The batches before the marker stay, the marker and what follows it do not, and the log takes them later.
    leader = new_log(new_disk())
    append(leader, batch_of(b"a", producer_id=1, sequence=0, transactional=True))
    end_transaction(leader, 1, commit=False)
    append(leader, batch_of(b"b"))
    disk = new_disk()
    log = new_log(disk)
    disk.fail(operation, 28, "*.txnindex")
    with pytest.raises(KafkaError) as refused:
        log.append_as_follower(read_batches(leader, 0), NOW)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.end_offset, log.last_stable_offset(1), log.has_failed) == (1, 0, False)
    assert log.append_as_follower(read_batches(leader, 1), NOW) is not None
    assert (log.end_offset, log.last_stable_offset(3)) == (3, 3)
    assert log.aborted_transactions(0, 3) == leader.aborted_transactions(0, 3) != []
    log.close()
    log = open_log(disk, clean=True)
    assert read_batches(log, 0) == read_batches(leader, 0)
    assert log.aborted_transactions(0, 3) == leader.aborted_transactions(0, 3)


def read_batches(log: Log, offset: int) -> bytes:
    found = log.read(offset, 1 << 20, up_to=log.end_offset, at_least_one=True)
    assert found is not None
    return bytes(found.slice.read())


def test_a_retry_is_recognised_however_small_the_segments_are() -> None:
    # After a clean restart the log knows only a producer's last batch. The four before it are in segments of their own,
    # with batches of another producer between them.
    disk = new_disk()
    settings = LogSettings(segment_bytes=100)
    log = new_log(disk, settings)
    for sequence in range(5):
        append(log, batch_of(b"%d" % sequence, producer_id=1, sequence=sequence))
        append(log, batch_of(b"%d" % sequence, producer_id=2, sequence=sequence))
    log.close()
    log = open_log(disk, settings, clean=True)
    assert len(log.segments) == 10
    again = append(log, batch_of(b"0", producer_id=1, sequence=0))
    assert again.is_duplicate and again.base_offset == 0


def test_producers_that_come_and_go_take_bounded_memory() -> None:
    # There are twice as many producers as a partition remembers, with two batches each. The newest are remembered, and
    # so are one that writes now and then, and one that came first and has a transaction open. A retry of any of these
    # is recognised.
    log = new_log(new_disk())
    busy, open_since_the_start, first, count = 1, 2, 100, 2 * PRODUCERS_MAX
    append(log, batch_of(b"a", producer_id=open_since_the_start, sequence=0, transactional=True))
    for number in range(count):
        for sequence in range(2):
            append(log, batch_of(b"a", producer_id=first + number, sequence=sequence))
        if number % 1000 == 0:
            append(log, batch_of(b"a", producer_id=busy, sequence=number // 1000))
        assert len(log.producers.producers) <= PRODUCERS_MAX
    newest = range(first + count - PRODUCERS_MAX // 2, first + count)
    assert set(newest) | {busy, open_since_the_start} <= log.producers.producers.keys()
    end = log.end_offset
    for producer_id, sequence in ((newest[0], 0), (newest[-1], 1), (busy, count // 1000 - 1)):
        assert append(log, batch_of(b"a", producer_id=producer_id, sequence=sequence)).is_duplicate
    assert append(log, batch_of(b"a", producer_id=open_since_the_start, sequence=0, transactional=True)).is_duplicate
    assert log.end_offset == end and log.producers.first_unstable_offset == 0


def test_a_forgotten_producer_may_continue() -> None:
    # As for one whose state has expired, its next batch is accepted, and a retry of that batch is recognised.
    log = new_log(new_disk())
    append(log, batch_of(b"a", producer_id=1, sequence=0))
    for number in range(PRODUCERS_MAX):
        append(log, batch_of(b"a", producer_id=100 + number, sequence=0))
    assert 1 not in log.producers.producers
    taken = append(log, batch_of(b"b", producer_id=1, sequence=1))
    again = append(log, batch_of(b"b", producer_id=1, sequence=1))
    assert not taken.is_duplicate and again.is_duplicate and again.base_offset == taken.base_offset


def test_a_producer_that_left_takes_little_memory() -> None:
    # Producers that wrote one batch each. With a deque for its batches each took 1.2 KB.
    headers = [batch.check(batch_of(b"a", producer_id=1_000_000 + number, sequence=0)) for number in range(1000)]
    states = ProducerStates()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number, header in enumerate(headers):
            states.replay(header, 1_000_000 + number)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken / len(headers) < 700


def test_a_silent_producer_keeps_one_batch_and_is_recognised_by_all_five() -> None:
    # After many new producers only its last batch is in memory. A retry of an earlier one is looked up in the log.
    log = new_log(new_disk())
    for sequence in range(5):
        append(log, batch_of(b"a", producer_id=1, sequence=sequence))
    for number in range(2 * TRIMMED_EVERY):
        append(log, batch_of(b"a", producer_id=100 + number, sequence=0))
        append(log, batch_of(b"a", producer_id=2, sequence=number))
    states = log.producers.producers
    assert (len(states[1].batches), len(states[2].batches)) == (1, 5)
    for sequence in (0, 2, 4):
        again = append(log, batch_of(b"a", producer_id=1, sequence=sequence))
        assert again.is_duplicate and again.base_offset == sequence
    append(log, batch_of(b"a", producer_id=1, sequence=5))
    assert code_of(log, batch_of(b"a", producer_id=1, sequence=7)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
