"""A client that asks the wrong broker learns who leads and where, in the answer itself (KIP-951)."""

import asyncio

import pytest

from ottla.broker.call import Client
from ottla.cluster.changes import CreatePartition, CreateTopic
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers import fetch, produce
from ottla.handlers.new_leader import find_new_leader
from ottla.records.batch import encode
from ottla.wire.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.produce import PartitionData, ProduceRequest, ProduceResponse, TopicData
from tests.simulation.loop import simulate
from tests.unit.handlers.three_brokers import (
    CLIENT,
    OTHERS,
    TOPIC,
    TOPIC_ID,
    ask,
    change,
    fence,
    move_leader,
    shared,
    start,
)

LEADER = OTHERS[1]
PRODUCE, FETCH = 0, 1


def produce_to(version: int, acks: int = 1, timeout_ms: int = 1000) -> ProduceRequest:
    data = PartitionData(0, memoryview(bytearray(encode([(None, b"v", (), 1)]))))
    topic = TopicData("" if version >= 13 else TOPIC, TOPIC_ID if version >= 13 else bytes(16), [data])
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topics=[topic])


def fetch_from(version: int) -> FetchRequest:
    named = FetchTopic("" if version >= 13 else TOPIC, TOPIC_ID if version >= 13 else bytes(16))
    named.partitions = [FetchPartition(0, current_leader_epoch=0, max_bytes=1000)]
    return FetchRequest(session_epoch=-1, topics=[named])


@pytest.mark.parametrize(("version", "told"), [(9, False), (10, True), (13, True)])
def test_produce_names_the_leader(version: int, told: bool) -> None:
    async def scenario() -> None:
        broker = await start(leader=LEADER)
        response = produce.handle(broker.node, ask(PRODUCE, version, produce_to(version)))
        assert isinstance(response, ProduceResponse)
        (result,) = response.topics[0].partitions
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (result.current_leader_id, result.current_leader_epoch) == ((LEADER, 0) if told else (-1, -1))
        endpoints = [(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints]
        assert endpoints == ([(LEADER, f"host-{LEADER}", 9000 + LEADER, f"rack-{LEADER}")] if told else [])
        broker.abort()

    simulate(scenario())


@pytest.mark.parametrize(("version", "told"), [(12, False), (16, True), (17, True)])
def test_fetch_names_the_leader(version: int, told: bool) -> None:
    async def scenario() -> None:
        broker = await start()
        await move_leader(broker, LEADER)
        response = fetch.handle(broker.node, ask(FETCH, version, fetch_from(version)))
        assert isinstance(response, FetchResponse)
        (result,) = response.topics[0].partitions
        assert result.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (result.current_leader is not None and tuple(result.current_leader) == (LEADER, 1)) is told
        assert [each.node_id for each in response.node_endpoints] == ([LEADER] if told else [])
        broker.abort()

    simulate(scenario())


def test_a_partition_of_other_brokers_is_not_unknown() -> None:
    async def scenario() -> None:
        broker = await start()
        topic_id = b"e" * 16
        await change(broker, CreateTopic(topic_id, "elsewhere"), CreatePartition(topic_id, 0, OTHERS, OTHERS, LEADER))
        request = FetchRequest(session_epoch=-1, topics=[FetchTopic(topic_id=topic_id)])
        request.topics[0].partitions = [FetchPartition(index, max_bytes=1000) for index in (0, 1)]
        response = fetch.handle(broker.node, ask(FETCH, 16, request))
        assert isinstance(response, FetchResponse)
        known, unknown = response.topics[0].partitions
        assert known.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert known.current_leader is not None and tuple(known.current_leader) == (LEADER, 0)
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and unknown.current_leader is None
        for name, index, code in (
            ("elsewhere", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            ("elsewhere", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("nowhere", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ):
            with pytest.raises(KafkaError) as refusal:
                broker.node.replicas.get(name, index)
            assert refusal.value.code == code
        with pytest.raises(KafkaError) as refusal:
            broker.node.replicas.get_by_id(b"n" * 16, 0)
        assert refusal.value.code == ErrorCode.UNKNOWN_TOPIC_ID
        broker.abort()

    simulate(scenario())


def test_a_leader_that_cannot_be_reached_has_no_address() -> None:
    async def scenario() -> None:
        broker = await start(leader=LEADER)
        await fence(broker, LEADER)
        state = broker.node.image.partition(TOPIC, 0)
        assert state is not None and state.leader != LEADER
        response = produce.handle(broker.node, ask(PRODUCE, 10, produce_to(10)))
        assert isinstance(response, ProduceResponse)
        assert LEADER not in [each.node_id for each in response.node_endpoints]
        broker.abort()

    simulate(scenario())


def test_a_leader_without_an_address_on_the_listener_has_none_in_the_answer() -> None:
    async def scenario() -> None:
        broker = await start(leader=LEADER)
        told = find_new_leader(broker.node, CLIENT, TOPIC, TOPIC_ID, 0)
        hidden = find_new_leader(broker.node, Client(1, "OTHER", ("h", 1), ("h", 2)), TOPIC, TOPIC_ID, 0)
        assert told is not None and told.endpoint is not None
        assert hidden == (LEADER, 0, None)
        broker.abort()

    simulate(scenario())


def test_a_producer_that_waits_is_told_when_the_leader_moves() -> None:
    async def scenario() -> None:
        broker = await start()
        answer = produce.handle(broker.node, ask(PRODUCE, 10, produce_to(10, acks=-1, timeout_ms=60_000)))
        assert isinstance(answer, asyncio.Future)
        await move_leader(broker, LEADER)
        response = await answer
        assert response is not None
        (result,) = response.topics[0].partitions
        assert (result.error_code, result.current_leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, LEADER)
        assert [each.node_id for each in response.node_endpoints] == [LEADER]
        assert not shared(broker).is_leader
        broker.abort()

    simulate(scenario())
