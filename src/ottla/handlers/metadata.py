"""Metadata: the brokers, and for each topic its partitions and their leaders.

Versions: 0 an empty list means all topics; 1 null does, controller id, racks; 2 cluster id; 4 the client may forbid
auto-creation; 5 offline replicas; 7 leader epochs; 8 authorized operations; 9 flexible; 10 topic ids; 12 topics by id;
13 a code for the whole answer.

A topic that does not exist is created if auto.create.topics.enable and the client allow it: this answer says
UNKNOWN_TOPIC_OR_PARTITION, and a later one has the topic (`cluster.auto_creation`).
"""

from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from typing import Any

from ottla.broker.addresses import can_reach, choose_endpoint, find_unreachable, judge_leader
from ottla.broker.call import Call, Client
from ottla.broker.node import Node
from ottla.cluster.image import BrokerImage, Image, TopicImage
from ottla.cluster.topics import check_name, is_internal
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import list_cluster_operations, list_operations, may
from ottla.handlers.mutations import choose_affordable
from ottla.security import rights
from ottla.security.operations import ResourceType
from ottla.wire.error_codes import find_error_codes
from ottla.wire.message import ZERO_UUID
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.schema import encode, write_structure

REQUIRES = rights.parts(rights.DESCRIBE_TOPIC, rights.CREATE_TOPIC, rights.CREATE_CLUSTER, rights.DESCRIBE_CLUSTER)

PIECES_BYTES_MAX = 8 << 20
PIECE_OVERHEAD_BYTES = 250

REVEAL_NOTHING = (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_ID)
"""Errors that everybody gets, whatever they may do."""

NO_BROKERS: frozenset[int] = frozenset()

NO_IDS = {ZERO_UUID}
"""The ids of a request that names its topics."""


def handle(
    node: Node, call: Call[MetadataRequest]
) -> bytes | MetadataResponse | Coroutine[Any, Any, bytes | MetadataResponse]:
    topics = call.body.topics
    if topics is not None and len(topics) == 1:
        known: bytes | None = node.image.derived.get(make_key(node, call, topics[0]))
        if known is not None and (node.authorizer is None or may_share(node, call, topics[0])):
            return known
    if topics is not None and len(topics) > 1:
        call.body.topics = choose_topics_to_answer(topics, call.version)
    if node.catch_up is not None and any(is_unknown(node, call, asked) for asked in call.body.topics or ()):
        return answer_after_catching_up(node, node.catch_up, call)
    return answer(node, call)


def choose_topics_to_answer(topics: list[MetadataRequestTopic], version: int) -> list[MetadataRequestTopic]:
    """The topics to answer: as in Kafka, each once, and none by name if the request has ids."""
    if version >= 12 and {asked.topic_id for asked in topics} != NO_IDS:
        return list({asked.topic_id: asked for asked in topics if asked.topic_id != ZERO_UUID}.values())
    if len({asked.name for asked in topics}) == len(topics):
        return topics
    return list({(asked.name, asked.topic_id): asked for asked in topics}.values())


async def answer_after_catching_up(
    node: Node, catch_up: Callable[[], Awaitable[None]], call: Call[MetadataRequest]
) -> bytes | MetadataResponse:
    """A topic that another broker has created is known here a moment later: look before denying it."""
    await catch_up()
    return answer(node, call)


def answer(node: Node, call: Call[MetadataRequest]) -> bytes | MetadataResponse:
    topics = call.body.topics
    if topics is not None and len(topics) == 1:
        return answer_one_topic(node, call, topics[0])
    response = build_response(node, call)
    create_missing(node, call)
    return response


def answer_one_topic(node: Node, call: Call[MetadataRequest], asked: MetadataRequestTopic) -> bytes | MetadataResponse:
    """Answer the most frequent request, for one topic. Clients of the same address share the encoded bytes.

    While nothing changes, `handle` finds them with the image, in one look. They outlive the image with the pieces.
    """
    image = node.image
    topic = find_topic(image, asked, call.version)
    if not isinstance(topic, TopicImage):
        response = build_response(node, call)
        create_missing(node, call)
        return response
    if node.authorizer is not None and not may_share(node, call, asked):
        return build_response(node, call)
    pieces = EncodedPieces.of(image)
    key = make_key(node, call, asked)
    known = pieces.get_answer(key, image, topic)
    if known is not None:
        image.derived[key] = known
        return known
    response = build_response(node, call)
    if not find_error_codes(response):  # an error is counted each time it is sent, so it is not kept as bytes
        pieces.keep_answer(key, image, topic, response, call.version)
    return response


def may_share(node: Node, call: Call[MetadataRequest], asked: MetadataRequestTopic) -> bool:
    """Whether the client gets the answer that everybody gets who may see the topic. Only those who ask what they may do
    get one of their own."""
    request = call.body
    if request.include_topic_authorized_operations or request.include_cluster_authorized_operations:
        return False
    name = get_name(asked)
    if name is None:
        name = node.image.topic_names.get(asked.topic_id)
    return name is not None and may(node, call, rights.DESCRIBE_TOPIC, name, silent=True)


def make_key(node: Node, call: Call[MetadataRequest], asked: MetadataRequestTopic) -> Hashable:
    """Requests for one topic that have the same key have the same answer."""
    client, request = call.client, call.body
    return (
        get_name(asked),
        asked.topic_id,
        call.version,
        client.listener,
        client.local_address,
        request.include_topic_authorized_operations,
        request.include_cluster_authorized_operations,
        node.recently_fenced.list_ids(),
    )


def create_missing(node: Node, call: Call[MetadataRequest]) -> None:
    """Request the creation of every topic that does not exist, unless the broker or the client forbids it."""
    if not is_creation_allowed(node, call):
        return
    missing = [asked.name for asked in call.body.topics or () if asked.name and can_be_created(node.image, asked)]
    if node.authorizer is not None:
        missing = [name for name in missing if may_create(node, call, name, silent=True)]
    if missing:
        node.auto_creation.request(choose_affordable(node, call, missing, node.config.num_partitions))


def is_creation_allowed(node: Node, call: Call[MetadataRequest]) -> bool:
    return node.config.auto_create_topics_enable and (call.version < 4 or call.body.allow_auto_topic_creation)


def may_create(node: Node, call: Call[MetadataRequest], name: str, *, silent: bool = False) -> bool:
    """Whether the client may have a topic created by asking for it."""
    return may(node, call, rights.DESCRIBE_TOPIC, name, silent=True) and (
        may(node, call, rights.CREATE_CLUSTER, silent=True) or may(node, call, rights.CREATE_TOPIC, name, silent=silent)
    )


def is_unknown(node: Node, call: Call[MetadataRequest], asked: MetadataRequestTopic) -> bool:
    """Whether the topic may have been created by another broker. A name that the client may not see is not looked for:
    the time that it takes would tell."""
    image, name = node.image, get_name(asked)
    if name is None:
        return image.topic_by_id(asked.topic_id) is None
    return image.topic(name) is None and may(node, call, rights.DESCRIBE_TOPIC, name, silent=True)


def can_be_created(image: Image, asked: MetadataRequestTopic) -> bool:
    topic = find_topic(image, asked, MetadataRequest.VERSIONS[-1])
    return not isinstance(topic, TopicImage) and topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class EncodedPieces:
    """Encoded parts of answers: the description of a topic is the same for every client.

    They are handed on from image to image. A piece counts while its topic and the brokers have not changed, so a change
    of one topic costs nothing for the others. To describe and encode a topic of one partition takes 8 us, to find it
    here 1 us.
    """

    __slots__ = ("_emptied_at", "_kept", "_size")

    def __init__(self, version: int) -> None:
        self._kept: dict[Hashable, tuple[object, object, Any]] = {}
        self._size = 0
        self._emptied_at = version
        """The version of the image at which all pieces were dropped last, because there was no room left."""

    @classmethod
    def of(cls, image: Image) -> "EncodedPieces":
        pieces: EncodedPieces = image.lasting.get(cls) or image.lasting.setdefault(cls, cls(image.version))
        return pieces

    def topic(
        self,
        image: Image,
        topic: TopicImage,
        version: int,
        operations: int | None,
        unreachable: frozenset[int] = NO_BROKERS,
    ) -> MetadataResponseTopic:
        """`operations`: what the client may do with the topic, if it wants to know."""
        key = (version, operations, topic.name, unreachable)
        known: MetadataResponseTopic | None = self._get(key, image, topic)
        if known is not None:
            return known
        described = describe(image, topic, version, unreachable)
        if operations is not None:
            described.topic_authorized_operations = operations
        if any(partition.error_code for partition in described.partitions):
            return described  # an error is counted each time it is sent, so it is not kept as bytes
        piece = write_structure(MetadataResponse, version, described)
        self._keep(key, image, topic, piece, [piece])
        return piece

    def brokers(
        self, image: Image, client: Client, version: int, recently_fenced: tuple[int, ...]
    ) -> list[MetadataResponseBroker]:
        """The brokers that serve, and those that did a moment ago. If none serves, all of them: a client has to ask one
        of them again.

        librdkafka 2.16 drops each broker that an answer does not list. If it has lost all brokers once before, it does
        not begin with its bootstrap servers again after an empty list, and stands still for good. None serves when the
        sessions of all brokers have ended, until the first one has registered again.
        """
        key = (version, client.listener, client.local_address, recently_fenced)
        known: list[MetadataResponseBroker] | None = self._get(key, image, None)
        if known is None:
            found = image.all_brokers()
            if image.alive_brokers():
                found = [each for each in found if not each.fenced or each.id in recently_fenced]
            listed = [describe_broker(each, client) for each in found if can_reach(each, client)]
            known = [write_structure(MetadataResponse, version, broker) for broker in listed]
            self._keep(key, image, None, known, known)
        return known

    def get_answer(self, key: Hashable, image: Image, topic: TopicImage) -> bytes | None:
        """The encoded answer about one topic that was kept under this key."""
        known: bytes | None = self._get(key, image, topic)
        return known

    def keep_answer(
        self, key: Hashable, image: Image, topic: TopicImage, response: MetadataResponse, version: int
    ) -> None:
        encoded = bytes(encode(MetadataResponse, version, response))
        self._keep(key, image, topic, encoded, [encoded])

    def _get(self, key: Hashable, image: Image, topic: TopicImage | None) -> Any:
        found = self._kept.get(key)
        return found[2] if found is not None and found[0] is topic and found[1] is image.brokers else None

    def _keep(self, key: Hashable, image: Image, topic: TopicImage | None, value: Any, pieces: Sequence[Any]) -> None:
        size = PIECE_OVERHEAD_BYTES + sum(map(len, pieces))
        if self._size + size > PIECES_BYTES_MAX:
            if self._emptied_at == image.version:
                return
            self._kept.clear()  # some are of topics that have changed, or are deleted
            self._size = 0
            self._emptied_at = image.version
        self._size += size  # what a piece replaces is counted until there is no room left
        self._kept[key] = (topic, image.brokers, value)


def build_response(node: Node, call: Call[MetadataRequest]) -> MetadataResponse:
    request, image, version = call.body, node.image, call.version
    pieces = EncodedPieces.of(image)
    unreachable = find_unreachable(image, call.client.listener)
    if request.topics is None or (version == 0 and not request.topics):
        topics = [
            pieces.topic(image, topic, version, find_operations(node, call, topic.name), unreachable)
            for topic in image.topics()
            if may(node, call, rights.DESCRIBE_TOPIC, topic.name, silent=True)
        ]
    else:
        topics = [find(node, call, pieces, asked, unreachable) for asked in request.topics]
    # Only if topics are named. Whoever asks for all or none may be an administrator, who asks each broker next, and
    # would wait for those that are gone.
    recently_fenced = node.recently_fenced.list_ids() if request.topics else ()
    response = MetadataResponse(
        brokers=pieces.brokers(image, call.client, version, recently_fenced),
        cluster_id=image.cluster_id,
        controller_id=node.broker_id,  # every broker takes the requests that Kafka's controller takes
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = list_cluster_operations(node, call)
    return response


def find_operations(node: Node, call: Call[MetadataRequest], name: str) -> int | None:
    if not call.body.include_topic_authorized_operations:
        return None
    return list_operations(node, call, ResourceType.TOPIC, name)


def describe_broker(broker: BrokerImage, client: Client) -> MetadataResponseBroker:
    endpoint = choose_endpoint(broker, client)
    return MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)


def find(
    node: Node,
    call: Call[MetadataRequest],
    pieces: EncodedPieces,
    asked: MetadataRequestTopic,
    unreachable: frozenset[int],
) -> MetadataResponseTopic:
    image, version = node.image, call.version
    topic = find_topic(image, asked, version)
    if node.authorizer is not None and (refused := refuse(node, call, asked, topic)) is not None:
        return refused
    if isinstance(topic, TopicImage):
        return pieces.topic(image, topic, version, find_operations(node, call, topic.name), unreachable)
    if call.body.include_topic_authorized_operations:
        topic.topic_authorized_operations = list_operations(node, call, ResourceType.TOPIC, topic.name or "")
    return topic


def refuse(
    node: Node, call: Call[MetadataRequest], asked: MetadataRequestTopic, topic: TopicImage | MetadataResponseTopic
) -> MetadataResponseTopic | None:
    """The answer for a topic that the client may not see, or may not create by asking for it; None if it may.

    By name, it is the same whether the topic exists or not. As in Kafka, ids are no secret: one that exists is refused,
    without the name, and another is unknown.
    """
    code, name = ErrorCode.TOPIC_AUTHORIZATION_FAILED, get_name(asked)
    if not isinstance(topic, TopicImage) and topic.error_code in REVEAL_NOTHING:
        return None
    if name is None:
        assert isinstance(topic, TopicImage)
        if may(node, call, rights.DESCRIBE_TOPIC, topic.name):
            return None
        return MetadataResponseTopic(error_code=code, name=None, topic_id=topic.id)
    if not may(node, call, rights.DESCRIBE_TOPIC, name):
        return MetadataResponseTopic(error_code=code, name=name)
    if isinstance(topic, TopicImage) or not is_creation_allowed(node, call) or may_create(node, call, name):
        return None
    return MetadataResponseTopic(error_code=code, name=name, is_internal=is_internal(name))


def get_name(asked: MetadataRequestTopic) -> str | None:
    """The name of the requested topic; None if it is requested by id. An id counts more than a name beside it: Kafka's
    admin client sends an empty name with each."""
    return asked.name if asked.topic_id == ZERO_UUID else None


def find_topic(image: Image, asked: MetadataRequestTopic, version: int) -> TopicImage | MetadataResponseTopic:
    """The requested topic, or the answer that says why there is none."""
    name, topic_id = get_name(asked), asked.topic_id
    if name is None and version < 12:  # the fields exist since version 10
        return MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=asked.name or "", topic_id=topic_id)
    if name is None:
        by_id = image.topic_by_id(topic_id)
        return by_id or MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, topic_id=topic_id)
    topic = image.topic(name)
    if topic is not None:
        return topic
    try:
        check_name(name)
    except KafkaError as error:
        return MetadataResponseTopic(error_code=error.code, name=name)
    return MetadataResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name, is_internal=is_internal(name)
    )


def describe(
    image: Image, topic: TopicImage, version: int, unreachable: frozenset[int] = NO_BROKERS
) -> MetadataResponseTopic:
    leaders = [judge_leader(partition, unreachable) for partition in topic.partitions]
    described = MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=[
            MetadataResponsePartition(
                error_code=error,
                partition_index=index,
                leader_id=leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=image.offline_replicas(partition, unreachable),
            )
            for index, (partition, (leader, error)) in enumerate(zip(topic.partitions, leaders, strict=True))
        ],
    )
    if version == 0:
        available = {broker.id for broker in image.alive_brokers()} - unreachable
        for each in described.partitions:
            leave_out_unavailable(each, available)
    return described


def leave_out_unavailable(described: MetadataResponsePartition, available: set[int]) -> None:
    """Version 0 shows only replicas that the client can reach, and has REPLICA_NOT_AVAILABLE if some are missing.

    Later versions show all of them: the client sees in the list of brokers which ones are away.
    """
    if available.issuperset(described.replica_nodes) and available.issuperset(described.isr_nodes):
        return
    described.replica_nodes = [member for member in described.replica_nodes if member in available]
    described.isr_nodes = [member for member in described.isr_nodes if member in available]
    described.error_code = described.error_code or ErrorCode.REPLICA_NOT_AVAILABLE
