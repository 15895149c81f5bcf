"""Pure functions of one transaction that decide its next state, who may ask for it, and the error if not."""

from ottla.coordinators.machine import ProducerIdentity, Turn
from ottla.coordinators.transactions.transaction import EPOCH_BUMP, LAST_EPOCH, NO_ID, State, Transaction
from ottla.errors import ErrorCode, KafkaError


class FreshIdNeeded(KafkaError):
    """The decision needs an unused producer id: call again with one."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.COORDINATOR_NOT_AVAILABLE, "a new producer id is needed")


# The next state


def prepare(
    known: Transaction, committed: bool, turn: Turn, version: int, *, raised: bool, fresh_id: int | None
) -> Transaction:
    """Decide how the transaction ends. `raised`: it ends in the next epoch; after the last epoch a new id follows."""
    rotates = raised and version >= EPOCH_BUMP and known.is_exhausted
    return known.move_to(
        State.PREPARE_COMMIT if committed else State.PREPARE_ABORT,
        turn.wall_ms,
        epoch=known.epoch + raised,
        next_producer_id=require_fresh_id(fresh_id) if rotates else NO_ID,
        # An abort may come before any partition was added, and the record needs a start time.
        started_ms=known.started_ms if known.state is State.ONGOING else turn.wall_ms,
        version=version,
    )


def complete(prepared: Transaction, turn: Turn) -> Transaction:
    rotated = prepared.next_producer_id != NO_ID
    return prepared.move_to(
        State.COMPLETE_COMMIT if prepared.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT,
        turn.wall_ms,
        producer_id=prepared.next_producer_id if rotated else prepared.producer_id,
        epoch=0 if rotated else prepared.epoch,
        next_producer_id=NO_ID,
        partitions=frozenset(),
    )


# Who may do what


def may_continue(known: Transaction, expected: ProducerIdentity) -> bool:
    """Whether a producer that sends its id and epoch owns this transactional id (KIP-360)."""
    rotated_from = known.previous_producer_id == expected.id and expected.epoch >= LAST_EPOCH
    return known.producer_id == expected.id or rotated_from


def ends_with_same_epoch(known: Transaction, producer: ProducerIdentity, committed: bool) -> bool:
    """Whether an EndTxn below version 2 ends the transaction. False: it is a retry, the transaction has ended before.

    KafkaError if the producer may not end it.
    """
    if producer.id != known.producer_id:
        raise wrong_id_error(known, producer)
    if producer.epoch != known.epoch:
        raise fenced_error(known, producer)
    if known.state is State.ONGOING:
        return True
    if known.state is (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT):
        return False
    if known.state is (State.PREPARE_COMMIT if committed else State.PREPARE_ABORT):
        raise concurrent_error(known)
    raise wrong_state_error(known, committed)


def ends_with_next_epoch(known: Transaction, producer: ProducerIdentity, committed: bool) -> bool:
    """Like `ends_with_same_epoch`, for version 2, where the epoch distinguishes a retry from the end of the next one.

                        retry: the epoch before      current epoch
                        abort        commit          abort      commit
        Empty           fenced       fenced          ends       wrong state
        CompleteAbort   done before  fenced          ends       wrong state
        CompleteCommit  wrong state  done before     ends       wrong state

    A commit that finds its transaction aborted came too late: the coordinator aborted it. The client is fenced.
    """
    before_rotation = known.is_rotated and producer == (known.previous_producer_id, LAST_EPOCH)
    if known.state.is_prepared and (producer.id in (known.producer_id, known.next_producer_id)):
        raise concurrent_error(known)
    if producer.id != known.producer_id and not before_rotation:
        raise wrong_id_error(known, producer)
    is_retry = before_rotation or producer.epoch + 1 == known.epoch
    if is_retry and known.state is State.COMPLETE_COMMIT and committed:
        return False
    if is_retry and known.state is State.COMPLETE_ABORT and not committed:
        return False
    if is_retry and known.state is State.COMPLETE_COMMIT:
        raise wrong_state_error(known, committed)
    if producer.epoch != known.epoch or before_rotation:
        raise fenced_error(known, producer)
    if known.state is not State.ONGOING and committed:
        raise wrong_state_error(known, committed)
    return True


def require_fresh_id(fresh_id: int | None) -> int:
    if fresh_id is None:
        raise FreshIdNeeded
    return fresh_id


# Errors


def concurrent_error(known: Transaction) -> KafkaError:
    message = f"the last transaction of {known.transactional_id!r} is not over: it is in {known.state.shown}"
    return KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, message)


def wrong_id_error(known: Transaction, producer: ProducerIdentity) -> KafkaError:
    message = f"{known.transactional_id!r} belongs to producer {known.producer_id}, not to {producer.id}"
    return KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message)


def fenced_error(known: Transaction, producer: ProducerIdentity) -> KafkaError:
    message = (
        f"{known.transactional_id!r} is at producer {known.producer_id} epoch {known.epoch}, "
        f"this is producer {producer.id} epoch {producer.epoch}"
    )
    return KafkaError(ErrorCode.PRODUCER_FENCED, message)


def wrong_state_error(known: Transaction, committed: bool) -> KafkaError:
    wanted = "commit" if committed else "abort"
    message = f"{known.transactional_id!r} is in {known.state.shown}, there is nothing to {wanted}"
    return KafkaError(ErrorCode.INVALID_TXN_STATE, message)
