"""ListOffsets: the end that clients were told never goes back, and only the leader answers, in its own epoch."""

import pytest

from ottla.broker.broker import Broker
from ottla.errors import ErrorCode
from ottla.handlers import list_offsets
from ottla.handlers.list_offsets import DEBUG, EARLIEST, LATEST
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


CONSUMER = -1
NONE, NOT_LEADER = ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER
FENCED, UNKNOWN = ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize(
    ("is_leader", "replica_id", "errors"),
    [
        (True, CONSUMER, [NONE, FENCED, NONE, UNKNOWN]),
        (False, CONSUMER, [NOT_LEADER, FENCED, NOT_LEADER, UNKNOWN]),
        (True, DEBUG, [NONE, FENCED, NONE, UNKNOWN]),
        (False, DEBUG, [NONE, FENCED, NONE, UNKNOWN]),
    ],
)
def test_the_leader_epoch_is_checked_before_the_leadership(
    is_leader: bool, replica_id: int, errors: list[ErrorCode]
) -> None:
    # The errors for no epoch, an older one, the current one and a later one, as in Kafka's ListOffsetsRequestTest.
    async def scenario() -> None:
        broker = await start()
        await move_leader(broker, OTHERS[0])
        await move_leader(broker, broker.node.broker_id if is_leader else OTHERS[1])
        assert shared(broker).leader_epoch == 2
        for epoch, error in zip((-1, 1, 2, 3), errors, strict=True):
            partition = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST, current_leader_epoch=epoch)
            topic = ListOffsetsTopic(name=TOPIC, partitions=[partition])
            request = ListOffsetsRequest(replica_id=replica_id, topics=[topic])
            response = list_offsets.handle(broker.node, ask(LIST_OFFSETS, 7, request))
            assert response.topics[0].partitions[0].error_code == error, epoch
        broker.abort()

    simulate(scenario())
