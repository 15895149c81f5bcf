"""DeleteTopics at a broker that has not heard yet of what another broker did."""

import asyncio
from unittest.mock import patch

from ottla.handlers import delete_topics
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.unit.handlers.one_broker import call
from tests.unit.replication.three_directories import create, filled
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
