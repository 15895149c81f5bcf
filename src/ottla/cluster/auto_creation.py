"""Topics that are created because a client asked for their metadata (auto.create.topics.enable).

As in Kafka the client is not kept waiting: it is answered UNKNOWN_TOPIC_OR_PARTITION, asks again, and then finds the
topic. One task creates the requested topics one after the other. It belongs to the broker and not to a connection, so
a topic is also created if the client that asked for it disconnects.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from random import Random

from ottla.cluster.decision import Decision
from ottla.cluster.image import Image
from ottla.cluster.metadata import Metadata
from ottla.cluster.topics import NewTopic, create_topic
from ottla.config import BrokerConfig
from ottla.errors import KafkaError

logger = logging.getLogger(__name__)

Decide = Callable[[Image, BrokerConfig, Random], Decision[None]]

PENDING_MAX = 10_000
"""How many topics may wait to be created. Requests for more are dropped, because a client can make up any number of
names. A client that needs its topic asks again."""


class AutoTopicCreation:
    def __init__(
        self,
        metadata: Metadata,
        random: Random,
        config: Callable[[], BrokerConfig],
        internal_topics: Mapping[str, Decide],
    ) -> None:
        """`internal_topics` decides how topics are created that have partitions and settings of their own."""
        self._metadata = metadata
        self._random = random
        self._config = config
        self._internal_topics = internal_topics
        self._pending: dict[str, None] = {}  # a dict, since it keeps the order of the requests
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def request(self, names: Iterable[str]) -> None:
        """Have these topics created soon. A topic that is already pending is created once."""
        if self._is_stopped:
            return
        for name in names:
            if len(self._pending) < PENDING_MAX:
                self._pending[name] = None
        if self._pending and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._create_pending(), name="auto topic creation")

    async def stop(self) -> None:
        """Wait for the topic that is being created; the other pending ones are forgotten."""
        self._is_stopped = True
        if self._task is not None:
            await asyncio.wait([self._task])

    def cancel(self) -> None:
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()

    async def _create_pending(self) -> None:
        try:
            while self._pending and not self._is_stopped:
                name = next(iter(self._pending))
                try:
                    await self._create(name)
                finally:
                    del self._pending[name]
        finally:
            self._task = None

    async def _create(self, name: str) -> None:
        try:
            timeout_s = self._config().request_timeout_ms / 1000
            await self._metadata.change(lambda image: self._decide(image, name), timeout_s)
        except KafkaError as error:
            logger.info("topic %r is not created automatically: %s", name, error)
        except Exception:
            logger.exception("topic %r could not be created automatically", name)

    def _decide(self, image: Image, name: str) -> Decision[None]:
        if image.topic(name) is not None:
            return Decision((), None)
        if decide := self._internal_topics.get(name):
            return decide(image, self._config(), self._random)
        return Decision(create_topic(image, NewTopic(name), self._config(), self._random).changes, None)
