"""OffsetForLeaderEpoch: only the leader answers, in its own epoch, where an earlier epoch ended."""

import pytest

from ottla.errors import ErrorCode
from ottla.handlers import offset_for_leader_epoch
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.simulation.loop import simulate
from tests.unit.handlers.three_brokers import OTHERS, TOPIC, append, ask, move_leader, shared, start

OFFSET_FOR_LEADER_EPOCH = 23
LEADER_EPOCH = 2


def find_end(current_epoch: int, epoch: int, *, is_leader: bool = True) -> EpochEndOffset:
    """The answer of a leader whose log has three records of epoch 0 and two of epoch 2, or of one that was."""

    async def scenario() -> EpochEndOffset:
        broker = await start()
        append(shared(broker), 3)
        await move_leader(broker, OTHERS[0])
        await move_leader(broker, broker.node.broker_id)
        append(shared(broker), 2)
        if not is_leader:
            await move_leader(broker, OTHERS[0])
        asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=current_epoch, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=[asked])]
        )
        response = offset_for_leader_epoch.handle(broker.node, ask(OFFSET_FOR_LEADER_EPOCH, 4, request))
        broker.abort()
        return response.topics[0].partitions[0]

    return simulate(scenario())


@pytest.mark.parametrize(
    ("current", "error"),
    [
        (LEADER_EPOCH - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (LEADER_EPOCH, ErrorCode.NONE),
        (LEADER_EPOCH + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (-1, ErrorCode.NONE),
    ],
)
def test_the_clients_epoch_is_checked_both_ways(current: int, error: ErrorCode) -> None:
    assert find_end(current, 0).error_code == error


@pytest.mark.parametrize(
    ("current", "error"),
    [
        (LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH),
        (LEADER_EPOCH + 1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (LEADER_EPOCH + 2, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_a_follower_does_not_answer(current: int, error: ErrorCode) -> None:
    """Its leader epoch is one higher. As in Kafka's OffsetsForLeaderEpochRequestTest the epoch is checked first."""
    assert find_end(current, 0, is_leader=False).error_code == error


@pytest.mark.parametrize(("epoch", "expected"), [(0, (0, 3)), (1, (0, 3)), (2, (2, 5)), (3, (-1, -1))])
def test_the_end_of_an_epoch_is_where_the_next_begins(epoch: int, expected: tuple[int, int]) -> None:
    found = find_end(LEADER_EPOCH, epoch)
    assert (found.leader_epoch, found.end_offset) == expected
