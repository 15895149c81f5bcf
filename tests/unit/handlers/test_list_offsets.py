"""ListOffsets on a new leader: the end that clients were told never goes back."""

import pytest

from ottla.broker.broker import Broker
from ottla.errors import ErrorCode
from ottla.handlers import list_offsets
from ottla.handlers.list_offsets import EARLIEST, LATEST
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.simulation.loop import simulate
from tests.unit.handlers.three_brokers import OTHERS, TOPIC, append, ask, follow, move_leader, shared, start

LIST_OFFSETS = 2


def listed(broker: Broker, timestamp: int, version: int = 7, replica_id: int = -1) -> tuple[int, int]:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topic = ListOffsetsTopic(name=TOPIC, partitions=[partition])
    request = ListOffsetsRequest(replica_id=replica_id, topics=[topic])
    response = list_offsets.handle(broker.node, ask(LIST_OFFSETS, version, request))
    (result,) = response.topics[0].partitions
    return result.error_code, result.offset


def test_latest_is_not_available_until_the_high_watermark_reaches_the_new_epoch() -> None:
    # The previous leader may have told clients a larger end than this one knows.
    async def scenario() -> None:
        broker = await start()
        append(shared(broker), 5)
        for other in OTHERS:
            follow(broker, other, 2)
        assert listed(broker, LATEST) == (0, 2)
        await move_leader(broker, OTHERS[0])
        assert listed(broker, LATEST)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await move_leader(broker, broker.node.broker_id)
        for other in OTHERS:
            follow(broker, other, 4)
        for timestamp in (LATEST, 10**12):
            assert listed(broker, timestamp)[0] == ErrorCode.OFFSET_NOT_AVAILABLE
        assert listed(broker, LATEST, version=4)[0] == ErrorCode.LEADER_NOT_AVAILABLE
        assert listed(broker, EARLIEST) == (0, 0) and listed(broker, 1) == (0, 0)
        assert listed(broker, LATEST, replica_id=OTHERS[0]) == (0, 5)
        for other in OTHERS:
            follow(broker, other, 5)
        assert listed(broker, LATEST) == (0, 5)
        append(shared(broker))
        assert listed(broker, LATEST) == (0, 5), "within an epoch a high watermark below the end is right"
        assert listed(broker, 10**12) == (0, -1)
        broker.abort()

    simulate(scenario())


@pytest.mark.parametrize(
    ("epoch", "error"), [(0, ErrorCode.FENCED_LEADER_EPOCH), (1, ErrorCode.NONE), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_the_leader_epoch_is_checked_both_ways(epoch: int, error: ErrorCode) -> None:
    async def scenario() -> None:
        broker = await start(leader=OTHERS[0])
        await move_leader(broker, broker.node.broker_id)
        partition = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST, current_leader_epoch=epoch)
        topic = ListOffsetsTopic(name=TOPIC, partitions=[partition])
        request = ListOffsetsRequest(replica_id=-1, topics=[topic])
        response = list_offsets.handle(broker.node, ask(LIST_OFFSETS, 7, request))
        assert response.topics[0].partitions[0].error_code == error
        broker.abort()

    simulate(scenario())
