"""OffsetForLeaderEpoch: only the leader answers, in its own epoch, where an earlier epoch ended."""

from asyncio import iscoroutine
from collections.abc import Awaitable, Callable

import pytest

from ottla.broker.broker import Broker
from ottla.errors import ErrorCode
from ottla.handlers import offset_for_leader_epoch
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.simulation.loop import simulate
from tests.unit.handlers.three_brokers import OTHERS, TOPIC, append, ask, move_leader, shared, start

OFFSET_FOR_LEADER_EPOCH = 23
LEADER_EPOCH = 2


async def stay(broker: Broker) -> None:
    """Nobody else leads."""


async def depose(broker: Broker) -> None:
    await move_leader(broker, OTHERS[0])


def find_end(
    current_epoch: int,
    epoch: int,
    *,
    is_leader: bool = True,
    others_did: Callable[[Broker], Awaitable[None]] | None = None,
    is_connected: bool = True,
) -> EpochEndOffset:
    """The answer of a leader whose log has three records of epoch 0 and two of epoch 2, or of one that was.

    `others_did`: what the broker learns when it catches up with the metadata; None for a broker that is alone.
    """

    async def scenario() -> EpochEndOffset:
        broker = await start()
        append(shared(broker), 3)
        await move_leader(broker, OTHERS[0])
        await move_leader(broker, broker.node.broker_id)
        append(shared(broker), 2)
        if not is_leader:
            await depose(broker)
        if others_did is not None:
            broker.node.catch_up = lambda: others_did(broker)
        broker.node.is_connected = lambda: is_connected
        asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=current_epoch, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=[asked])]
        )
        answer = offset_for_leader_epoch.handle(broker.node, ask(OFFSET_FOR_LEADER_EPOCH, 4, request))
        response = await answer if iscoroutine(answer) else answer
        assert isinstance(response, OffsetForLeaderEpochResponse)
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


def test_a_leader_that_was_deposed_unawares_does_not_say_that_records_were_truncated() -> None:
    # It was paused. The client has read records of the next leader, and asks about their epoch.
    assert find_end(LEADER_EPOCH, LEADER_EPOCH + 1, others_did=depose).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert find_end(-1, LEADER_EPOCH + 1, others_did=depose).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_leader_that_cannot_look_whether_it_leads_lets_the_client_ask_again() -> None:
    found = find_end(LEADER_EPOCH, LEADER_EPOCH + 1, others_did=stay, is_connected=False)
    assert found.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert find_end(LEADER_EPOCH, LEADER_EPOCH, others_did=stay, is_connected=False).error_code == ErrorCode.NONE


def test_a_leader_that_leads_on_answers_as_in_kafka() -> None:
    # The topic was deleted, and created anew with the same name.
    found = find_end(LEADER_EPOCH, LEADER_EPOCH + 1, others_did=stay)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (ErrorCode.NONE, -1, -1)


def test_nothing_is_looked_up_for_a_client_that_may_not_see_the_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    # The time that it takes would tell that the topic exists.
    async def be_asked(broker: Broker) -> None:
        raise AssertionError("the metadata was read")

    monkeypatch.setattr(offset_for_leader_epoch, "may", lambda *asked, **options: False)
    found = find_end(LEADER_EPOCH, LEADER_EPOCH + 1, others_did=be_asked)
    assert found.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
