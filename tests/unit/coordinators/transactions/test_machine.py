"""Transactions as scripts: which requests are allowed in which order, and what survives a change of the coordinator."""

import pytest

from ottla.config import BrokerConfig
from ottla.coordinators.machine import Outcome, ProducerIdentity
from ottla.coordinators.transactions.machine import Filters
from ottla.coordinators.transactions.records import TransactionLogValue
from ottla.coordinators.transactions.transaction import (
    LAST_EPOCH,
    TRANSITIONS,
    IllegalTransition,
    State,
    Transaction,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.topic_partition import TopicPartition
from tests.unit.coordinators.transaction_scripts import ID, NOW, Stage, play

HOUR = 3_600_000
DAY = 24 * HOUR


def at_epoch(epoch: int, *, version: int = 2) -> Stage:
    """A transactional id whose producer 50 has reached this epoch."""
    stage = Stage(version=version)
    come = Transaction(ID, 50, epoch, 60_000, NOW, previous_producer_id=50, version=version)
    stage.apply(Outcome(records=[come.record]))
    return stage


def test_every_state_has_its_row_and_leads_on() -> None:
    # The table has the order of states: a prepared transaction can only be completed, and nothing follows DEAD.
    assert set(TRANSITIONS) == set(State) - {State.PREPARE_EPOCH_FENCE}
    assert list(TRANSITIONS[State.PREPARE_COMMIT]) == [State.COMPLETE_COMMIT]
    assert list(TRANSITIONS[State.PREPARE_ABORT]) == [State.COMPLETE_ABORT]
    assert not TRANSITIONS[State.DEAD]
    transaction = Transaction("id", 1, 0, 1000, NOW, State.PREPARE_COMMIT)
    with pytest.raises(IllegalTransition, match="'id' cannot go from PrepareCommit to CompleteAbort"):
        transaction.move_to(State.COMPLETE_ABORT, NOW)


def test_commit_and_abort_with_an_epoch_for_each() -> None:
    # With transactions v2 every end raises the epoch and returns it to the client.
    play("""
        a inits           | Empty 100/0; a: 100/0
        a adds p0         | Ongoing 100/0 p0; a: done
        a adds p0         | a: done
        a adds p1         | Ongoing 100/0 p0 p1; a: done
        a commits         | PrepareCommit 100/1 p0 p1; markers commit 100/1 p0 p1; a: 100/1
        markers land      | CompleteCommit 100/1
        a adds p2         | Ongoing 100/1 p2; a: done
        a aborts          | PrepareAbort 100/2 p2; markers abort 100/2 p2; a: 100/2
        markers land      | CompleteAbort 100/2
    """)


def test_clients_of_version_1_keep_their_epoch() -> None:
    play("""
        A inits           | Empty 100/0; A: 100/0
        A adds p0         | Ongoing 100/0 p0; A: done
        A commits         | PrepareCommit 100/0 p0; markers commit 100/0 p0; A: done
        markers land      | CompleteCommit 100/0
        A adds p1         | Ongoing 100/0 p1; A: done
        A aborts          | PrepareAbort 100/0 p1; markers abort 100/0 p1; A: done
        markers land      | CompleteAbort 100/0
    """)


def test_the_next_transaction_waits_for_the_markers_of_the_last() -> None:
    # A request to end while markers are pending gets CONCURRENT_TRANSACTIONS, not an empty success.
    play("""
        a inits           | Empty 100/0; a: 100/0
        a adds p0         | Ongoing 100/0 p0; a: done
        a commits         | PrepareCommit 100/1 p0; markers commit 100/1 p0; a: 100/1
        a adds p1         | a: CONCURRENT_TRANSACTIONS
        a verifies p1     | a: CONCURRENT_TRANSACTIONS
        a commits         | a: CONCURRENT_TRANSACTIONS
        a aborts          | a: CONCURRENT_TRANSACTIONS
        a continues       | a: CONCURRENT_TRANSACTIONS
        b inits           | b: CONCURRENT_TRANSACTIONS
        markers land      | CompleteCommit 100/1
        a adds p1         | Ongoing 100/1 p1; a: done
    """)
    play("""
        A inits           | Empty 100/0; A: 100/0
        A adds p0         | Ongoing 100/0 p0; A: done
        A aborts          | PrepareAbort 100/0 p0; markers abort 100/0 p0; A: done
        A aborts          | A: CONCURRENT_TRANSACTIONS
        A commits         | A: INVALID_TXN_STATE
        A adds p1         | A: CONCURRENT_TRANSACTIONS
    """)


def test_a_repeated_end_gets_the_same_answer() -> None:
    # The answer was lost. A repeated request for the same end succeeds, one for the other end does not.
    play("""
        a inits            | Empty 100/0; a: 100/0
        a adds p0          | Ongoing 100/0 p0; a: done
        a commits, unheard | PrepareCommit 100/1 p0; markers commit 100/1 p0; a: 100/1
        a commits, unheard | a: CONCURRENT_TRANSACTIONS
        markers land       | CompleteCommit 100/1
        a aborts           | a: INVALID_TXN_STATE
        a commits          | a: 100/1
        a commits          | a: INVALID_TXN_STATE
    """)
    play("""
        A inits            | Empty 100/0; A: 100/0
        A commits          | A: INVALID_TXN_STATE
        A adds p0          | Ongoing 100/0 p0; A: done
        A commits          | PrepareCommit 100/0 p0; markers commit 100/0 p0; A: done
        markers land       | CompleteCommit 100/0
        A commits          | A: done
        A aborts           | A: INVALID_TXN_STATE
    """)


def test_late_requests_of_a_transaction_do_not_reach_the_next() -> None:
    # With v2 every late request has an older epoch.
    stage = play("""
        a inits            | Empty 100/0; a: 100/0
        a adds p0          | Ongoing 100/0 p0; a: done
        a commits          | PrepareCommit 100/1 p0; markers commit 100/1 p0; a: 100/1
        markers land       | CompleteCommit 100/1
        a adds p1          | Ongoing 100/1 p1; a: done
    """)
    late = ProducerIdentity(100, 0)
    for ask in (
        lambda machine, turn: machine.add_partitions(ID, late, [("p", 2)], turn, version=2),
        lambda machine, turn: machine.find_missing_partitions(ID, late, [("p", 1)], turn),
    ):
        with pytest.raises(KafkaError) as refused:
            stage.ask(ask)
        assert refused.value.code is ErrorCode.PRODUCER_FENCED
    assert stage.known is not None and stage.known.partitions == {("p", 1)}


def test_an_abort_of_nothing_raises_the_epoch_at_once() -> None:
    # A v2 client aborts if it does not know whether anything arrived. Both records are one batch, without markers.
    play("""
        a inits            | Empty 100/0; a: 100/0
        a aborts, unheard  | PrepareAbort 100/1; CompleteAbort 100/1; a: 100/1
        a aborts           | a: 100/1
        a aborts           | PrepareAbort 100/2; CompleteAbort 100/2; a: 100/2
        a commits          | a: INVALID_TXN_STATE
    """)


def test_the_second_owner_of_an_id_fences_the_first() -> None:
    # Every request of the first one is refused.
    play("""
        a inits            | Empty 100/0; a: 100/0
        b inits            | Empty 100/1; b: 100/1
        a adds p0          | a: PRODUCER_FENCED
        a verifies p0      | a: PRODUCER_FENCED
        a commits          | a: PRODUCER_FENCED
        a aborts           | a: PRODUCER_FENCED
        a continues        | a: PRODUCER_FENCED
        b adds p0          | Ongoing 100/1 p0; b: done
        a continues        | a: PRODUCER_FENCED
        a aborts           | a: PRODUCER_FENCED
    """)


@pytest.mark.parametrize("version", [0, 2])
def test_a_new_owner_aborts_the_open_transaction(version: int) -> None:
    # The new owner is told to retry. The abort has an epoch that no producer gets.
    play(
        """
        a inits            | Empty 100/0; a: 100/0
        a adds p0 p1       | Ongoing 100/0 p0 p1; a: done
        b inits            | PrepareAbort 100/1 p0 p1; markers abort 100/1 p0 p1; b: CONCURRENT_TRANSACTIONS
        b inits            | b: CONCURRENT_TRANSACTIONS
        markers land       | CompleteAbort 100/1
        b inits            | Empty 100/2; b: 100/2
        a commits          | a: PRODUCER_FENCED
        """,
        Stage(version=version),
    )


def test_a_producer_continues_after_an_error() -> None:
    # KIP-360: the producer sends its id and epoch, and gets the next epoch. A repeated request gets the same one.
    play("""
        a inits               | Empty 100/0; a: 100/0
        a continues, unheard  | Empty 100/1; a: 100/1
        a continues           | Empty 100/1; a: 100/1
        a continues           | Empty 100/2; a: 100/2
        b inits               | Empty 100/3; b: 100/3
        a continues           | a: PRODUCER_FENCED
    """)


def test_a_forgotten_transactional_id_gets_a_new_producer_id() -> None:
    play(f"""
        a inits               | Empty 100/0; a: 100/0
        {8 * DAY} ms pass     | gone
        a adds p0             | a: INVALID_PRODUCER_ID_MAPPING
        a continues           | Empty 101/0; a: 101/0
    """)


def test_epochs_run_out_at_an_end() -> None:
    # The transaction of the last epoch ends, and the producer continues under a new id. A retry is recognised.
    stage = at_epoch(LAST_EPOCH - 1)
    play(
        """
        a inits            | Empty 50/32766; a: 50/32766
        a adds p0          | Ongoing 50/32766 p0; a: done
        a commits, unheard | PrepareCommit 50/32767 then 100 p0; markers commit 50/32767 p0; a: 100/0
        a commits, unheard | a: CONCURRENT_TRANSACTIONS
        markers land       | CompleteCommit 100/0
        a commits          | a: 100/0
        a adds p1          | Ongoing 100/0 p1; a: done
        a commits          | PrepareCommit 100/1 p1; markers commit 100/1 p1; a: 100/1
    """,
        stage,
    )


def test_the_new_id_is_known_before_the_old_one_has_ended() -> None:
    # The client got its new id with the end of the last transaction, whose markers are still being written.
    stage = at_epoch(LAST_EPOCH - 1)
    play(
        """
        a inits            | Empty 50/32766; a: 50/32766
        a adds p0          | Ongoing 50/32766 p0; a: done
        a commits          | PrepareCommit 50/32767 then 100 p0; markers commit 50/32767 p0; a: 100/0
        a adds p1          | a: CONCURRENT_TRANSACTIONS
        a aborts           | a: CONCURRENT_TRANSACTIONS
        markers land       | CompleteCommit 100/0
        a adds p1          | Ongoing 100/0 p1; a: done
    """,
        stage,
    )


def test_epochs_run_out_at_a_new_beginning() -> None:
    # All epochs are used up without a transaction. The next owner gets a new id, and gets it again if it retries.
    play("a inits | Empty 100/0; a: 100/0", at_epoch(LAST_EPOCH))
    play(
        """
        a inits               | Empty 50/32766; a: 50/32766
        a continues, unheard  | Empty 100/0; a: 100/0
        a continues           | Empty 100/0; a: 100/0
    """,
        at_epoch(LAST_EPOCH - 1),
    )


@pytest.mark.parametrize(("version", "then"), [(2, " then 100"), (0, "")])
def test_epochs_run_out_while_fencing(version: int, then: str) -> None:
    # KAFKA-19367, KAFKA-20090: an abort in the last epoch does not overflow, and the next owner has a new id.
    play(
        f"""
        a inits            | Empty 50/32766; a: 50/32766
        a adds p0          | Ongoing 50/32766 p0; a: done
        b inits            | PrepareAbort 50/32767{then} p0; markers abort 50/32767 p0; b: CONCURRENT_TRANSACTIONS
        """,
        stage := at_epoch(LAST_EPOCH - 1, version=version),
    )
    stage.land()
    assert stage.known is not None and stage.known.state is State.COMPLETE_ABORT
    play("b inits | Empty 100/1; b: 100/1" if then else "b inits | Empty 100/0; b: 100/0", stage)


def test_a_transaction_that_takes_too_long_is_aborted() -> None:
    # The coordinator checks every ten seconds. From then on the producer is fenced, or told that its commit was too
    # late.
    play("""
        a inits timeout=15000 | Empty 100/0; a: 100/0
        a adds p0             | Ongoing 100/0 p0; a: done
        14999 ms pass         |
        a adds p1             | Ongoing 100/0 p0 p1; a: done
        5002 ms pass          | PrepareAbort 100/1 p0 p1; markers abort 100/1 p0 p1
        a adds p2             | a: PRODUCER_FENCED
        a commits             | a: CONCURRENT_TRANSACTIONS
        markers land          | CompleteAbort 100/1
        a adds p2             | a: PRODUCER_FENCED
        a commits             | a: PRODUCER_FENCED
        a aborts              | a: 100/1
        a adds p0             | Ongoing 100/1 p0; a: done
    """)


def test_a_commit_and_the_time_out_have_one_outcome() -> None:
    # The first one decides. A committed transaction is not aborted any more.
    play("""
        A inits timeout=15000 | Empty 100/0; A: 100/0
        A adds p0             | Ongoing 100/0 p0; A: done
        15000 ms pass         |
        A commits             | PrepareCommit 100/0 p0; markers commit 100/0 p0; A: done
        60000 ms pass         |
        markers land          | CompleteCommit 100/0
        60000 ms pass         |
    """)
    play("""
        A inits timeout=5000  | Empty 100/0; A: 100/0
        A adds p0             | Ongoing 100/0 p0; A: done
        10000 ms pass         | PrepareAbort 100/1 p0; markers abort 100/1 p0
        A commits             | A: PRODUCER_FENCED
        markers land          | CompleteAbort 100/1
        A commits             | A: PRODUCER_FENCED
    """)


def test_a_time_out_in_the_last_epoch_gets_a_new_id_first() -> None:
    play(
        """
        a inits timeout=5000  | Empty 50/32766; a: 50/32766
        a adds p0             | Ongoing 50/32766 p0; a: done
        10000 ms pass         |
        errands are done      | PrepareAbort 50/32767 then 100 p0; markers abort 50/32767 p0
        markers land          | CompleteAbort 100/0
        a commits             | a: PRODUCER_FENCED
        a continues           | Empty 100/0; a: 100/0
    """,
        at_epoch(LAST_EPOCH - 1),
    )


def test_a_step_of_the_wall_clock_ends_no_transaction() -> None:
    # Time-outs are counted on the monotonic clock.
    play("""
        a inits                        | Empty 100/0; a: 100/0
        a adds p0                      | Ongoing 100/0 p0; a: done
        wall clock jumps 3600000 ms    |
        30000 ms pass                  |
        a commits                      | PrepareCommit 100/1 p0; markers commit 100/1 p0; a: 100/1
    """)


@pytest.mark.parametrize(
    ("timeout", "is_fine"), [(0, False), (-1, False), (1, True), (900_000, True), (900_001, False)]
)
def test_a_time_out_must_be_within_the_brokers_limit(timeout: int, is_fine: bool) -> None:
    # Longer than transaction.max.timeout.ms, or no time at all, is refused.
    answer = "Empty 100/0; a: 100/0" if is_fine else "a: INVALID_TRANSACTION_TIMEOUT"
    play(f"a inits timeout={timeout} | {answer}")


def test_unknown_producers_are_refused() -> None:
    play("""
        a adds p0     | a: INVALID_PRODUCER_ID_MAPPING
        a verifies p0 | a: INVALID_PRODUCER_ID_MAPPING
        a commits     | a: INVALID_PRODUCER_ID_MAPPING
        b inits       | Empty 100/0; b: 100/0
        a adds p0     | a: INVALID_PRODUCER_ID_MAPPING
        a aborts      | a: INVALID_PRODUCER_ID_MAPPING
        A commits     | A: INVALID_PRODUCER_ID_MAPPING
    """)


def test_only_partitions_of_the_open_transaction_are_verified() -> None:
    # KIP-890 part 1: a batch that comes after the end does not begin a transaction.
    play("""
        A inits           | Empty 100/0; A: 100/0
        A verifies p0     | A: missing p0
        A adds p0 p2      | Ongoing 100/0 p0 p2; A: done
        A verifies p0     | A: all there
        A verifies p0 p1  | A: missing p1
        A commits         | PrepareCommit 100/0 p0 p2; markers commit 100/0 p0 p2; A: done
        markers land      | CompleteCommit 100/0
        A verifies p0     | A: missing p0
    """)


def test_another_coordinator_completes_a_prepared_transaction() -> None:
    # The coordinator may die after each record. The next one has the same state and continues.
    play("""
        a inits               | Empty 100/0; a: 100/0
        coordinator restarts  |
        a adds p0             | Ongoing 100/0 p0; a: done
        coordinator restarts  |
        a commits, unheard    | PrepareCommit 100/1 p0; markers commit 100/1 p0; a: 100/1
        coordinator restarts  | markers commit 100/1 p0
        a commits, unheard    | a: CONCURRENT_TRANSACTIONS
        coordinator restarts  | markers commit 100/1 p0
        markers land          | CompleteCommit 100/1
        coordinator restarts  |
        a commits             | a: 100/1
        markers land          |
        a adds p1             | Ongoing 100/1 p1; a: done
    """)


def test_an_open_transaction_keeps_its_time_out_over_a_restart() -> None:
    play("""
        a inits timeout=60000 | Empty 100/0; a: 100/0
        a adds p0             | Ongoing 100/0 p0; a: done
        50000 ms pass         |
        coordinator restarts  |
        9000 ms pass          |
        20000 ms pass         | PrepareAbort 100/1 p0; markers abort 100/1 p0
    """)


def test_an_idle_id_expires_and_an_open_one_does_not() -> None:
    config = BrokerConfig.of({"transactional.id.expiration.ms": str(2 * DAY)})
    stage = play(
        f"""
        a inits               | Empty 100/0; a: 100/0
        {DAY + HOUR} ms pass  |
        a aborts              | PrepareAbort 100/1; CompleteAbort 100/1; a: 100/1
        {DAY + HOUR} ms pass  |
        {DAY} ms pass         | gone
    """,
        Stage(config=config),
    )
    assert stage.machine.wake_at is None
    kept = Stage(config=config)
    prepared = Transaction(ID, 1, 0, 60_000, NOW, State.PREPARE_COMMIT, frozenset({TopicPartition("p", 0)}))
    kept.apply(Outcome(records=[prepared.record]))
    kept.wait(5 * DAY)
    assert kept.known is not None


def test_a_record_of_an_unknown_state_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    # The record is of a newer release, or damaged. The others are served all the same.
    stage = play("a inits | Empty 100/0; a: 100/0")
    known = stage.known
    assert known is not None
    for number in (6, 7, 99):
        record = known.record
        assert isinstance(record.value, TransactionLogValue)
        record.value.transaction_status = number
        stage.machine.replay(record, NOW, None)
    assert stage.known == known
    assert len(caplog.records) == 3


def test_many_overdue_transactions_end_in_several_batches() -> None:
    stage = Stage()
    for number in range(250):
        open_one = Transaction(
            str(number), number, 0, 1_000, NOW, State.ONGOING, frozenset({TopicPartition("p", 0)}), NOW
        )
        stage.apply(Outcome(records=[open_one.record]))
    stage.apply(stage.machine.finish_loading(stage.turn()))
    stage.wait(15_000)
    assert len(stage.errands) == 250
    assert all(known.state is State.PREPARE_ABORT for known in stage.machine.by_id.values())


def test_listing_respects_its_filters() -> None:
    stage = play("""
        a inits        | Empty 100/0; a: 100/0
        a adds p0      | Ongoing 100/0 p0; a: done
        5000 ms pass   |
    """)

    def listed(filters: Filters) -> list[str]:
        found = stage.ask(lambda machine, turn: machine.list_transactions(filters, turn))
        assert isinstance(found, list)
        return [each.transactional_id for each in found]

    assert listed(Filters()) == [ID]
    assert listed(Filters(states=frozenset({State.ONGOING}))) == [ID]
    assert listed(Filters(states=frozenset({State.EMPTY}))) == []
    assert listed(Filters(producer_ids=frozenset({100, 5}))) == [ID]
    assert listed(Filters(producer_ids=frozenset({5}))) == []
    assert listed(Filters(longer_than_ms=4_999)) == [ID]
    assert listed(Filters(longer_than_ms=5_000)) == []


def test_a_description_tells_everything() -> None:
    stage = play("""
        a inits timeout=20000 | Empty 100/0; a: 100/0
        a adds p3 p1          | Ongoing 100/0 p1 p3; a: done
    """)
    found = stage.ask(lambda machine, turn: machine.describe(ID, turn))
    assert repr(found) == (
        f"TransactionState(error_code=0, transactional_id='{ID}', transaction_state='Ongoing', "
        f"transaction_timeout_ms=20000, transaction_start_time_ms={NOW}, producer_id=100, producer_epoch=0, "
        "topics=[TopicData(topic='p', partitions=[1, 3])])"
    )
    with pytest.raises(KafkaError) as unknown:
        stage.ask(lambda machine, turn: machine.describe("y", turn))
    assert unknown.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
