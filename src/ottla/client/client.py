"""The client of a Kafka cluster: finds leaders, coordinators and offsets, and sends each request to the right broker.

Requests are retried until `default.api.timeout.ms` has passed, as long as a retry can help: after a lost connection, a
change of leader, or while a coordinator is loading. A broker's throttle_time_ms is obeyed. A request may therefore be
handled twice; a caller for whom that matters must prevent it, as `sending.py` does with sequence numbers.

A `Client` connects to a broker when it first needs it, and belongs to one thread. It is pickled as its settings. In the
process that unpickles it, all clients with the same settings are one object and share their connections.
"""

import os
import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from random import SystemRandom
from typing import Any, NamedTuple, TypeVar

from ottla.client.backoff import Backoff
from ottla.client.buffers import allocate_bytes
from ottla.client.connection import Awaited, Connection, NotAuthenticated, Request, Unreachable
from ottla.client.settings import ClientSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.topic_partition import TopicPartition
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
"""How long a topic may stay unknown before it is an error: brokers learn of a new topic a moment after its creation."""

REQUESTS_AHEAD = 2
"""Further requests that are sent before an answer is read, where there are many."""

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


class Leader(NamedTuple):
    node: int
    epoch: int


class FoundOffset(NamedTuple):
    """The first record that is not older than a timestamp; offset -1 if there is none."""

    offset: int
    timestamp: int


class Topic(NamedTuple):
    topic_id: bytes
    leaders: Mapping[int, Leader]
    """The leader of each partition. Node -1 means that the partition has no leader."""


class UnknownTopic(KafkaError):
    """A topic or partition that the brokers still do not know after UNKNOWN_TOPIC_S."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)


class Client:
    def __init__(self, settings: Mapping[str, str]) -> None:
        """`settings` have Kafka's names. Raises ValueError for a setting that is not valid. Does not connect yet."""
        self.raw_settings = {name: str(value) for name, value in settings.items()}
        self.settings = ClientSettings.of(self.raw_settings)
        self.random = SystemRandom()
        self._nodes: dict[int, tuple[str, int]] = {}
        self._connections: dict[int, Connection] = {}
        self._topics: dict[str, Topic] = {}
        self._coordinators: dict[tuple[str, str], int] = {}
        self._answered: int | None = None
        """The broker that answered the last request which any broker can answer."""
        self._doubted: dict[int, None] = {}
        """Brokers whose answers led to a wrong leader or coordinator, the latest at the end: they are asked last."""

    def __reduce__(self) -> tuple[Callable[[Mapping[str, str]], "Client"], tuple[Mapping[str, str]]]:
        return get_shared_client, (self.raw_settings,)

    def close(self) -> None:
        """Close all connections. The client stays usable: the next request connects again."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def start_backoff(self, limit_s: float | None = None) -> Backoff:
        limit = self.settings.api_timeout_s if limit_s is None else limit_s
        return Backoff(limit, self.random, pause_s=self.settings.pause_s, pause_max_s=self.settings.pause_max_s)

    # Topics

    def count_partitions(self, names: Iterable[str] | None = None, *, pattern: str | None = None) -> dict[str, int]:
        """How many partitions each topic has: those named, or all whose whole name matches a regular expression.

        Raises UnknownTopic for a name that does not exist. A pattern may match nothing, and matches no internal topics.
        """
        if names is not None:
            wanted = sorted(set(names))
            self._fetch_topics(wanted)
            return {name: len(self._topics[name].leaders) for name in wanted}
        fits = _compile_pattern(pattern or "")
        response = self._fetch_metadata(None)
        found = {}
        for topic in sorted(response.topics, key=lambda topic: topic.name or ""):
            if topic.name and not topic.error_code and not topic.is_internal and fits(topic.name):
                self._topics[topic.name] = _read_topic(topic)
                found[topic.name] = len(topic.partitions)
        return found

    def fetch_topics(self, names: Iterable[str] | None = None) -> list[MetadataResponseTopic]:
        """What one broker says of these topics, or of all, now. Others learn of a change a moment earlier or later."""
        return self._fetch_metadata(None if names is None else list(names)).topics

    def has_topic(self, name: str) -> bool:
        return not any(topic.error_code for topic in self.fetch_topics([name]))

    def find_topic_id(self, topic: str) -> bytes:
        return self._find_topic(topic).topic_id

    def find_leader(self, topic: str, partition: int) -> Leader:
        """The leader, from cached metadata; `forget_topic` drops the cache. Raises KafkaError if there is no leader."""
        leader = self._find_topic(topic).leaders.get(partition)
        if leader is None:  # it may be new
            self.forget_topic(topic)
            leader = self._find_topic(topic).leaders.get(partition)
        if leader is None:
            raise UnknownTopic(f"topic {topic!r} has no partition {partition}")
        if leader.node < 0:
            self.forget_topic(topic)
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
        return leader

    def forget_topic(self, topic: str) -> None:
        self._topics.pop(topic, None)
        self._doubt()

    def _find_topic(self, name: str) -> Topic:
        if name not in self._topics:
            self._fetch_topics([name])
        return self._topics[name]

    def _fetch_topics(self, names: list[str]) -> None:
        """Cache the metadata of these topics. Raises UnknownTopic unless all of them exist."""
        backoff = self.start_backoff(min(UNKNOWN_TOPIC_S, self.settings.api_timeout_s))
        while True:
            response = self._fetch_metadata(names)
            codes: dict[str, ErrorCode] = {}
            for topic in response.topics:
                if topic.error_code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
                    self._topics[topic.name or ""] = _read_topic(topic)
                else:
                    codes[topic.name or ""] = error_code(topic.error_code)
            if not codes:
                return
            name, code = next(iter(sorted(codes.items())))
            if code not in RETRIABLE or not backoff.pause():
                if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise UnknownTopic(f"there is no topic {name!r}")
                raise KafkaError(code, f"topic {name!r}")

    def _fetch_metadata(self, names: list[str] | None) -> MetadataResponse:
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        response: MetadataResponse = self.ask_any(request)
        self._nodes = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        return response

    # Offsets

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, FoundOffset]:
        """The offset of EARLIEST, LATEST or a timestamp (ms), for each partition.

        With READ_COMMITTED, LATEST is the last stable offset.
        """
        found: dict[TopicPartition, FoundOffset] = {}
        missing = dict(wanted)
        backoff = self.start_backoff()
        while True:
            trouble: Exception | None = None
            for node, partitions in self._group_by_leader(missing, backoff).items():
                try:
                    found.update(self._list_offsets_of(node, partitions, isolation, backoff))
                except Unreachable as error:
                    trouble = error
                    self.disconnect(node)
            missing = {where: spec for where, spec in wanted.items() if where not in found}
            if not missing:
                return found
            for where in missing:
                self.forget_topic(where.topic)
            if not backoff.pause():
                lost = ", ".join(map(str, sorted(missing)[:5]))
                raise trouble or KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no offsets of {lost}: no leader answers")

    def _group_by_leader(
        self, wanted: Mapping[TopicPartition, int], backoff: Backoff
    ) -> dict[int, dict[TopicPartition, int]]:
        unknown = sorted({where.topic for where in wanted if where.topic not in self._topics})
        if unknown:
            self._fetch_topics(unknown)
        found: dict[int, dict[TopicPartition, int]] = {}
        for where, spec in wanted.items():
            leader = self.retry(lambda where=where: self.find_leader(*where), backoff)  # type: ignore[misc]
            found.setdefault(leader.node, {})[where] = spec
        return found

    def _list_offsets_of(
        self, node: int, wanted: Mapping[TopicPartition, int], isolation: int, backoff: Backoff
    ) -> Iterator[tuple[TopicPartition, FoundOffset]]:
        """The offsets that this broker answers with; partitions with a retriable error are left out."""
        topics: dict[str, ListOffsetsTopic] = {}
        for (name, partition), spec in wanted.items():
            topic = topics.setdefault(name, ListOffsetsTopic(name=name))
            topic.partitions.append(ListOffsetsPartition(partition_index=partition, timestamp=spec))
        timeout_ms = int(self.settings.request_timeout_s * 1000)
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation, topics=list(topics.values()), timeout_ms=timeout_ms
        )
        answer = self.connect(node).ask(request)
        backoff.throttle(answer.throttle_time_ms / 1000)
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
        """The answer of any one broker."""
        return self.retry(lambda: self._ask_any(request))

    def ask_any_in_turn(self, requests: Iterable[Request]) -> Generator[Any, None, None]:
        """The answer of any one broker to each request. A broker works on the next ones while an answer is read."""
        sent: deque[tuple[Request, Connection | None, Awaited | None]] = deque()
        try:
            for request in requests:
                sent.append((request, *self._send_any(request)))
                if len(sent) > REQUESTS_AHEAD:
                    yield self._receive_or_ask_any(*sent.popleft())
            while sent:
                yield self._receive_or_ask_any(*sent.popleft())
        finally:
            for _, connection, awaited in sent:
                if connection is not None and awaited is not None:
                    connection.abandon(awaited)

    def _send_any(self, request: Request) -> tuple[Connection, Awaited] | tuple[None, None]:
        connection = None
        try:
            connection = self.connect_any()
            return connection, connection.send(request)
        except NotAuthenticated:
            raise
        except Unreachable:
            self._drop(connection)
            return None, None  # it is asked again, with pauses, when its turn has come

    def _receive_or_ask_any(self, request: Request, connection: Connection | None, awaited: Awaited | None) -> Any:
        try:
            if connection is not None and awaited is not None:
                return connection.receive(awaited)
        except NotAuthenticated:
            raise
        except Unreachable:
            self._drop(connection)
        return self.ask_any(request)

    def _drop(self, connection: Connection | None) -> None:
        for node in [node for node, known in self._connections.items() if known is connection]:
            self.disconnect(node)

    def ask_each(self, request: Request) -> dict[int, Any]:
        """The answer of every broker, by broker id.

        All brokers are asked again while one of the answers holds a retriable error, or a broker cannot be reached:
        what it kept may be with another broker by then.
        """
        backoff = self.start_backoff()
        while True:
            answers: dict[int, Any] = {}
            trouble: Exception | None = None
            for node in self.list_brokers():
                try:
                    answers[node] = self._ask_node(node, request, lambda: None)
                except NotAuthenticated:
                    raise
                except RetriableAnswer as error:
                    answers[node], trouble = error.answer, trouble or error
                except Unreachable as error:
                    trouble = error
            if trouble is None or not backoff.pause():
                if isinstance(trouble, Unreachable):
                    raise trouble
                return answers

    def list_brokers(self) -> list[int]:
        """The ids of all brokers."""
        self._fetch_metadata([])
        return sorted(self._nodes)

    def ask_broker(self, node: int, request: Request) -> Any:
        """The answer of one broker, retried while it holds a retriable error."""
        if node not in self._nodes:
            self._fetch_metadata([])
        return self.retry(lambda: self._ask_node(node, request, lambda: None))

    def ask_controller(self, request: Request) -> Any:
        """The answer of the controller. Newer brokers forward such requests, older ones answer NOT_CONTROLLER."""
        controller = self._fetch_metadata([]).controller_id
        return self.ask_broker(controller, request) if controller in self._nodes else self.ask_any(request)

    def ask_leader(self, topic: str, partition: int, request: Request) -> Any:
        """The answer of the partition's leader. It is retried while the answer holds a retriable error."""

        def attempt() -> Any:
            leader = self.find_leader(topic, partition)
            return self._ask_node(leader.node, request, lambda: self.forget_topic(topic))

        return self.retry(attempt)

    def ask_coordinator(self, kind: str, key: str, request: Request, version_max: int | None = None) -> Any:
        """The answer of the coordinator of a "group" or "transaction", retried while it holds a retriable error."""

        def attempt() -> Any:
            node = self.find_coordinator(kind, key)
            return self._ask_node(node, request, lambda: self.forget_coordinator(kind, key), version_max)

        return self.retry(attempt)

    def find_coordinator(self, kind: str, key: str) -> int:
        """The id of the broker that coordinates a "group" or "transaction"; cached until `forget_coordinator`."""
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        request = FindCoordinatorRequest(key=key, key_type=COORDINATOR_KINDS[kind], coordinator_keys=[key])
        answer = self._ask_any(request)
        found = answer.coordinators[0] if answer.coordinators else answer
        if found.error_code:
            self._doubt()
            reason = found.error_message or "no coordinator"
            raise KafkaError(error_code(found.error_code), f"{kind} {key!r}: {reason}")
        self._nodes[found.node_id] = (found.host, found.port)
        self._coordinators[kind, key] = found.node_id
        return int(found.node_id)

    def forget_coordinator(self, kind: str, key: str) -> None:
        self._coordinators.pop((kind, key), None)
        self._doubt()

    def _doubt(self) -> None:
        """The broker that was asked last may be behind the others: ask another one next."""
        if self._answered is not None:
            self._doubted.pop(self._answered, None)
            self._doubted[self._answered] = None

    def _ask_node(self, node: int, request: Request, forget: Callable[[], None], version_max: int | None = None) -> Any:
        try:
            answer = self.connect(node).ask(request, version_max)
        except Unreachable:
            self.disconnect(node)
            forget()
            raise
        throttle_ms = getattr(answer, "throttle_time_ms", 0)
        if throttle_ms:
            self.start_backoff(throttle_ms / 1000).throttle(throttle_ms / 1000)
        code = next((code for code in find_error_codes(answer) if code in RETRIABLE), None)
        if code is not None:
            forget()
            raise RetriableAnswer(code, answer)
        return answer

    def retry(self, attempt: Callable[[], T], backoff: Backoff | None = None) -> T:
        """The result of `attempt`, called again after retriable errors and lost connections until `backoff` ends.

        When it ends on an answer that holds a retriable error, that answer is returned.
        """
        backoff = backoff or self.start_backoff()
        while True:
            try:
                return attempt()
            except RetriableAnswer as error:
                if not backoff.pause():
                    return error.answer  # type: ignore[no-any-return]
            except (NotAuthenticated, UnknownTopic):
                raise
            except Unreachable:
                if not backoff.pause():
                    raise
            except KafkaError as error:
                if error.code not in RETRIABLE or not backoff.pause():
                    raise

    # Connections

    def connect(self, node: int) -> Connection:
        """The connection to a broker, opened if there is none. Raises Unreachable if that fails."""
        connection = self._connections.get(node)
        if connection is None:
            settings = self.settings
            connection = self._connections[node] = Connection(
                *self._find_address(node),
                settings.security,
                self.random,
                settings.request_timeout_s,
                settings.client_id,
                allocate_bytes,
                settings.connect_timeout_s,
            )
        return connection

    def connect_any(self) -> Connection:
        """The connection to any one broker. Each address is tried once; raises Unreachable if all fail."""
        trouble: Unreachable | None = None
        for node in self._list_nodes_to_try():
            try:
                return self.connect(node)
            except NotAuthenticated:
                raise
            except Unreachable as error:
                trouble = error
        raise trouble or Unreachable("no address of a broker is known")

    def disconnect(self, node: int) -> None:
        """Close the connection to a broker, for example after an error. The next request opens another."""
        connection = self._connections.pop(node, None)
        if connection is not None:
            connection.close()

    def _find_address(self, node: int) -> tuple[str, int]:
        if node < 0:
            return self.settings.bootstrap[-1 - node]
        if node not in self._nodes:
            raise Unreachable(f"no address of broker {node} is known")
        return self._nodes[node]

    def _ask_any(self, request: Request) -> Any:
        """Ask one broker after the other until one answers."""
        trouble: Unreachable | None = None
        for node in self._list_nodes_to_try():
            try:
                answer = self.connect(node).ask(request)
            except NotAuthenticated:
                raise
            except Unreachable as error:
                self.disconnect(node)
                trouble = error
            else:
                self._answered = node
                return answer
        raise trouble or Unreachable("no address of a broker is known")

    def _list_nodes_to_try(self) -> list[int]:
        """Connected brokers first, then the other known ones, then bootstrap.servers as -1, -2, ...

        Brokers that are doubted come last, the latest one at the end. A broker that is cut off from the rest of its
        cluster would otherwise name the same wrong leader again and again.
        """
        bootstrap = range(-1, -1 - len(self.settings.bootstrap), -1)
        known = dict.fromkeys((*self._connections, *sorted(self._nodes), *bootstrap))
        trusted = [node for node in known if node not in self._doubted]
        return trusted + [node for node in self._doubted if node in known]


class RetriableAnswer(Exception):
    """An answer with a retriable error; `Client.retry` asks again."""

    def __init__(self, code: ErrorCode, answer: Any) -> None:
        super().__init__(code.name)
        self.answer = answer


_shared_clients: dict[tuple[int, tuple[tuple[str, str], ...]], Client] = {}


def get_shared_client(settings: Mapping[str, str]) -> Client:
    """The one client of this process with these settings. A forked child gets its own: it must not use its parent's
    connections."""
    key = os.getpid(), tuple(sorted(settings.items()))
    if key not in _shared_clients:
        _shared_clients[key] = Client(settings)
    return _shared_clients[key]


def close_shared_clients() -> None:
    """Close and forget all shared clients, for a process that outlives the brokers it has talked to."""
    for (process, _), client in _shared_clients.items():
        if process == os.getpid():
            client.close()
    _shared_clients.clear()


def find_error_codes(answer: Any) -> Iterator[ErrorCode]:
    """Every error code in an answer, at any depth."""
    found = getattr(answer, "error_code", 0) or getattr(answer, "partition_error_code", 0)
    if found:
        yield error_code(found)
    for name in getattr(type(answer), "__slots__", ()):
        part = getattr(answer, name)
        if isinstance(part, list):
            for each in part:
                yield from find_error_codes(each)


def error_code(number: int) -> ErrorCode:
    """The code as an enum. A code that this client does not know becomes UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _read_topic(found: MetadataResponseTopic) -> Topic:
    leaders = {each.partition_index: Leader(each.leader_id, each.leader_epoch) for each in found.partitions}
    return Topic(found.topic_id, leaders)


def _compile_pattern(pattern: str) -> Callable[[str], object]:
    try:
        return re.compile(pattern).fullmatch
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
