"""DeleteTopics: requests that name topics wrongly or twice, and topics of which the broker has not heard yet."""

import asyncio
from unittest.mock import patch

import pytest

from ottla.errors import ErrorCode
from ottla.handlers import delete_topics
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.unit.handlers.one_broker import call
from tests.unit.replication.three_directories import TOPIC, create, filled
from tests.unit.storage.logs import new_disk


def test_a_topic_that_another_broker_has_just_created_is_deleted() -> None:
    async def run() -> None:
        broker = await filled(new_disk())

        async def hear_of_it() -> None:
            await create(broker, "new", 1)

        with patch.object(broker.node, "catch_up", hear_of_it):
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name="new")], timeout_ms=300_000)
            answer = await delete_topics.handle(broker.node, call(request))
        assert [result.error_code for result in answer.responses] == [0]
        assert broker.node.image.topic("new") is None
        broker.abort()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("forms", "results", "stays"),
    [
        # The topic by its name (n) or its id (i), both in one (b), or neither (-).
        ("ni", {("n", "i", ErrorCode.INVALID_REQUEST)}, True),
        ("in", {("n", "i", ErrorCode.INVALID_REQUEST)}, True),
        ("nn", {("n", "", ErrorCode.INVALID_REQUEST)}, True),
        ("iin", {("", "i", ErrorCode.INVALID_REQUEST), ("n", "i", ErrorCode.INVALID_REQUEST)}, True),
        ("nni", {("n", "", ErrorCode.INVALID_REQUEST), ("n", "i", ErrorCode.NONE)}, False),
        ("b", {("n", "i", ErrorCode.INVALID_REQUEST)}, True),
        ("-", {("", "", ErrorCode.INVALID_REQUEST)}, True),
        ("-i", {("", "", ErrorCode.INVALID_REQUEST), ("n", "i", ErrorCode.NONE)}, False),
    ],
)
def test_a_topic_that_is_named_wrongly_is_not_deleted(
    forms: str, results: set[tuple[str, str, ErrorCode]], stays: bool
) -> None:
    """As in Kafka: by name and by id is once too often, while a name that is there twice leaves the id alone."""

    async def run() -> None:
        broker = await filled(new_disk())
        topic = broker.node.image.topic(TOPIC)
        assert topic is not None
        by_name, by_id = DeleteTopicState(name=TOPIC), DeleteTopicState(name=None, topic_id=topic.id)
        both, neither = DeleteTopicState(name=TOPIC, topic_id=topic.id), DeleteTopicState(name=None)
        asked = {"n": by_name, "i": by_id, "b": both, "-": neither}
        request = DeleteTopicsRequest(topics=[asked[form] for form in forms], timeout_ms=300_000)
        answer = await delete_topics.handle(broker.node, call(request))
        told = [
            ("n" if each.name else "", "i" if any(each.topic_id) else "", each.error_code) for each in answer.responses
        ]
        assert len(told) == len(results) and set(told) == results
        assert (broker.node.image.topic(TOPIC) is not None) is stays
        broker.abort()

    asyncio.run(run())
