"""A Kafka cluster, as a client sees it: who leads what, where offsets begin and end, and answers from the right broker.

Everything is tried again until `default.api.timeout.ms` has passed, as long as trying helps: a connection that is lost,
a broker that does not lead any more, a coordinator that is still loading. An answer that asks for patience
(throttle_time_ms) gets it. What is asked twice must not hurt: whoever sends what may not be repeated looks after that.

A `Cluster` opens a connection to a broker when it first needs it, and belongs to one thread. It is pickled as its
settings; in the process that unpickles it, all with the same settings are one, connections and all.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import SystemRandom
from typing import Any, NamedTuple, TypeVar

from ottla.client.buffers import bytes_room
from ottla.client.connection import Connection, NotAuthenticated, Request, Unreachable
from ottla.client.patience import Patience
from ottla.client.settings import ClientSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic

T = TypeVar("T")

EARLIEST = -2
LATEST = -1
READ_UNCOMMITTED = 0
READ_COMMITTED = 1

COORDINATOR_KINDS = {"group": 0, "transaction": 1}

UNKNOWN_TOPIC_S = 2.0
"""How long a topic may stay unknown: a new one reaches a broker a moment later, a wrong name never does."""

RETRIABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Leader(NamedTuple):
    node: int
    epoch: int


class FoundOffset(NamedTuple):
    """For a timestamp, the first record that is not older; offset -1: there is none."""

    offset: int
    timestamp: int


class Topic(NamedTuple):
    topic_id: bytes
    leaders: Mapping[int, Leader]
    """By partition; a partition without a leader has the node -1."""


class UnknownTopic(KafkaError):
    """A topic or partition that the cluster does not know, and has not come to know for a while."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)


class Cluster:
    def __init__(self, settings: Mapping[str, str]) -> None:
        """`settings` by Kafka's names. ValueError if they cannot be understood; nothing is opened yet."""
        self.settings = {name: str(value) for name, value in settings.items()}
        self.client = ClientSettings.of(self.settings)
        self.random = SystemRandom()
        self._nodes: dict[int, tuple[str, int]] = {}
        self._connections: dict[int, Connection] = {}
        self._topics: dict[str, Topic] = {}
        self._coordinators: dict[tuple[str, str], int] = {}

    def __reduce__(self) -> tuple[Callable[[Mapping[str, str]], "Cluster"], tuple[Mapping[str, str]]]:
        return shared, (self.settings,)

    def close(self) -> None:
        """Close what is open; what is asked afterwards opens it again."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def patience(self, limit_s: float | None = None) -> Patience:
        limit = self.client.api_timeout_s if limit_s is None else limit_s
        return Patience(limit, self.random, pause_s=self.client.pause_s, pause_max_s=self.client.pause_max_s)

    # Topics

    def topics(self, names: Iterable[str] | None = None, *, pattern: str | None = None) -> dict[str, int]:
        """How many partitions each topic has: the named ones, or all whose whole name fits a regular expression.

        A name that the cluster does not know is UNKNOWN_TOPIC_OR_PARTITION; a pattern may fit nothing.
        """
        if names is not None:
            wanted = sorted(set(names))
            self._learn(wanted)
            return {name: len(self._topics[name].leaders) for name in wanted}
        fits = _pattern(pattern or "")
        response = self._metadata(None)
        found = {}
        for topic in sorted(response.topics, key=lambda topic: topic.name or ""):
            if topic.name and not topic.error_code and not topic.is_internal and fits(topic.name):
                self._topics[topic.name] = _topic(topic)
                found[topic.name] = len(topic.partitions)
        return found

    def topic_id(self, topic: str) -> bytes:
        return self._topic(topic).topic_id

    def leader(self, topic: str, partition: int) -> Leader:
        """Who leads, as far as is known; `forget` makes the next question ask anew. KafkaError if nobody does."""
        leader = self._topic(topic).leaders.get(partition)
        if leader is None:  # it may be new
            self.forget(topic)
            leader = self._topic(topic).leaders.get(partition)
        if leader is None:
            raise UnknownTopic(f"topic {topic!r} has no partition {partition}")
        if leader.node < 0:
            self.forget(topic)
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
        return leader

    def forget(self, topic: str) -> None:
        self._topics.pop(topic, None)

    def _topic(self, name: str) -> Topic:
        if name not in self._topics:
            self._learn([name])
        return self._topics[name]

    def _learn(self, names: list[str]) -> None:
        """Metadata of these topics, each of which must exist."""
        patience = self.patience(min(UNKNOWN_TOPIC_S, self.client.api_timeout_s))
        while True:
            response = self._metadata(names)
            codes: dict[str, ErrorCode] = {}
            for topic in response.topics:
                if topic.error_code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
                    self._topics[topic.name or ""] = _topic(topic)
                else:
                    codes[topic.name or ""] = error_code(topic.error_code)
            if not codes:
                return
            name, code = next(iter(sorted(codes.items())))
            if code not in RETRIABLE or not patience.pause():
                if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise UnknownTopic(f"there is no topic {name!r}")
                raise KafkaError(code, f"topic {name!r}")

    def _metadata(self, names: list[str] | None) -> MetadataResponse:
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        response: MetadataResponse = self.ask_any(request)
        self._nodes = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        return response

    # Offsets

    def offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, FoundOffset]:
        """For each partition EARLIEST, LATEST (with READ_COMMITTED: the last stable offset) or a timestamp in ms."""
        found: dict[TopicPartition, FoundOffset] = {}
        missing = dict(wanted)
        patience = self.patience()
        while True:
            trouble: Exception | None = None
            for node, partitions in self._by_leader(missing, patience).items():
                try:
                    found.update(self._list_offsets(node, partitions, isolation, patience))
                except Unreachable as error:
                    trouble = error
                    self.drop(node)
            missing = {where: spec for where, spec in wanted.items() if where not in found}
            if not missing:
                return found
            for where in missing:
                self.forget(where.topic)
            if not patience.pause():
                lost = ", ".join(map(str, sorted(missing)[:5]))
                raise trouble or KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no offsets of {lost}: no leader answers")

    def _by_leader(
        self, wanted: Mapping[TopicPartition, int], patience: Patience
    ) -> dict[int, dict[TopicPartition, int]]:
        unknown = sorted({where.topic for where in wanted if where.topic not in self._topics})
        if unknown:
            self._learn(unknown)
        found: dict[int, dict[TopicPartition, int]] = {}
        for where, spec in wanted.items():
            leader = self.persist(lambda where=where: self.leader(*where), patience)  # type: ignore[misc]
            found.setdefault(leader.node, {})[where] = spec
        return found

    def _list_offsets(
        self, node: int, wanted: Mapping[TopicPartition, int], isolation: int, patience: Patience
    ) -> Iterator[tuple[TopicPartition, FoundOffset]]:
        """What this broker knows; partitions it cannot answer for now are left out."""
        topics: dict[str, ListOffsetsTopic] = {}
        for (name, partition), spec in wanted.items():
            topic = topics.setdefault(name, ListOffsetsTopic(name=name))
            topic.partitions.append(ListOffsetsPartition(partition_index=partition, timestamp=spec))
        timeout_ms = int(self.client.request_timeout_s * 1000)
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation, topics=list(topics.values()), timeout_ms=timeout_ms
        )
        answer = self.connection(node).ask(request)
        patience.rest(answer.throttle_time_ms / 1000)
        for topic in answer.topics:
            for result in topic.partitions:
                code = error_code(result.error_code)
                if code and code not in RETRIABLE:
                    raise KafkaError(code, f"offsets of {topic.name}-{result.partition_index}")
                if not code:
                    where = TopicPartition(topic.name, result.partition_index)
                    yield where, FoundOffset(result.offset, result.timestamp)

    # Asking

    def ask_any(self, request: Request) -> Any:
        """The answer of any broker."""
        return self.persist(lambda: self._ask_any(request))

    def ask_each(self, request: Request) -> list[Any]:
        """The answers of all brokers there are, each as `ask_coordinator` gives it."""
        self._metadata([])
        nodes = sorted(self._nodes)
        return [self.persist(lambda node=node: self._asked(node, request, lambda: None)) for node in nodes]  # type: ignore[misc]

    def ask_leader(self, topic: str, partition: int, request: Request) -> Any:
        """The answer of the partition's leader, once it holds no error that trying again could mend."""

        def attempt() -> Any:
            leader = self.leader(topic, partition)
            return self._asked(leader.node, request, lambda: self.forget(topic))

        return self.persist(attempt)

    def ask_coordinator(self, kind: str, key: str, request: Request, version_max: int | None = None) -> Any:
        """The answer of the coordinator of a "group" or "transaction", once trying again would not change it."""

        def attempt() -> Any:
            node = self.coordinator(kind, key)
            return self._asked(node, request, lambda: self.forget_coordinator(kind, key), version_max)

        return self.persist(attempt)

    def coordinator(self, kind: str, key: str) -> int:
        """The broker that coordinates it, as far as is known."""
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        request = FindCoordinatorRequest(key=key, key_type=COORDINATOR_KINDS[kind], coordinator_keys=[key])
        answer = self._ask_any(request)
        found = answer.coordinators[0] if answer.coordinators else answer
        if found.error_code:
            reason = found.error_message or "no coordinator"
            raise KafkaError(error_code(found.error_code), f"{kind} {key!r}: {reason}")
        self._nodes[found.node_id] = (found.host, found.port)
        self._coordinators[kind, key] = found.node_id
        return int(found.node_id)

    def forget_coordinator(self, kind: str, key: str) -> None:
        self._coordinators.pop((kind, key), None)

    def _asked(self, node: int, request: Request, forget: Callable[[], None], version_max: int | None = None) -> Any:
        try:
            answer = self.connection(node).ask(request, version_max)
        except Unreachable:
            self.drop(node)
            forget()
            raise
        throttle_ms = getattr(answer, "throttle_time_ms", 0)
        if throttle_ms:
            self.patience(throttle_ms / 1000).rest(throttle_ms / 1000)
        code = next((code for code in error_codes(answer) if code in RETRIABLE), None)
        if code is not None:
            forget()
            raise Unsettled(code, answer)
        return answer

    def persist(self, attempt: Callable[[], T], patience: Patience | None = None) -> T:
        """What `attempt` gives, tried again after retriable errors and lost connections until patience ends."""
        patience = patience or self.patience()
        while True:
            try:
                return attempt()
            except Unsettled as error:
                if not patience.pause():
                    return error.answer  # type: ignore[no-any-return]
            except (NotAuthenticated, UnknownTopic):
                raise
            except Unreachable:
                if not patience.pause():
                    raise
            except KafkaError as error:
                if error.code not in RETRIABLE or not patience.pause():
                    raise

    # Connections

    def connection(self, node: int) -> Connection:
        """The open connection to a broker. Unreachable if there is no way to it."""
        connection = self._connections.get(node)
        if connection is None:
            client = self.client
            connection = self._connections[node] = Connection(
                *self._address(node),
                client.security,
                self.random,
                client.request_timeout_s,
                client.client_id,
                bytes_room,
            )
        return connection

    def drop(self, node: int) -> None:
        """This connection is of no use any more."""
        connection = self._connections.pop(node, None)
        if connection is not None:
            connection.close()

    def _address(self, node: int) -> tuple[str, int]:
        if node < 0:
            return self.client.bootstrap[-1 - node]
        if node not in self._nodes:
            raise Unreachable(f"broker {node} is not known")
        return self._nodes[node]

    def _ask_any(self, request: Request) -> Any:
        """One round of all brokers there are: those that are connected, those that are known, bootstrap.servers."""
        bootstrap = range(-1, -1 - len(self.client.bootstrap), -1)
        trouble: Unreachable | None = None
        for node in dict.fromkeys((*self._connections, *sorted(self._nodes), *bootstrap)):
            try:
                return self.connection(node).ask(request)
            except NotAuthenticated:
                raise
            except Unreachable as error:
                self.drop(node)
                trouble = error
        raise trouble or Unreachable("no broker is known")


class Unsettled(Exception):
    """An answer that trying again may better."""

    def __init__(self, code: ErrorCode, answer: Any) -> None:
        super().__init__(code.name)
        self.answer = answer


_shared: dict[tuple[int, tuple[tuple[str, str], ...]], Cluster] = {}


def shared(settings: Mapping[str, str]) -> Cluster:
    """The one cluster of this process that has these settings. A child does not use its parent's connections."""
    key = os.getpid(), tuple(sorted(settings.items()))
    if key not in _shared:
        _shared[key] = Cluster(settings)
    return _shared[key]


def close_shared() -> None:
    """Close all of them, and forget them: for a process that outlives the brokers it has talked to."""
    for (process, _), cluster in _shared.items():
        if process == os.getpid():
            cluster.close()
    _shared.clear()


def error_codes(answer: Any) -> Iterator[ErrorCode]:
    """Every error that an answer holds, at whatever depth."""
    found = getattr(answer, "error_code", 0) or getattr(answer, "partition_error_code", 0)
    if found:
        yield error_code(found)
    for name in getattr(type(answer), "__slots__", ()):
        part = getattr(answer, name)
        if isinstance(part, list):
            for each in part:
                yield from error_codes(each)


def error_code(number: int) -> ErrorCode:
    """A code that is newer than this client is an error like any other that it cannot mend."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _topic(found: MetadataResponseTopic) -> Topic:
    leaders = {each.partition_index: Leader(each.leader_id, each.leader_epoch) for each in found.partitions}
    return Topic(found.topic_id, leaders)


def _pattern(pattern: str) -> Callable[[str], object]:
    try:
        return re.compile(pattern).fullmatch
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
