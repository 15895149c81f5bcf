"""DescribeQuorum: who keeps the metadata, and how far its log has come.

There is no quorum of controllers: a broker alone keeps the metadata itself, and a cluster keeps it in ZooKeeper, where
every broker reads and appends. The answer says in Kafka's terms what holds here. The controller leads and is the only
voter, because nothing waits for another broker's vote. The other brokers are observers; each follows the metadata by
itself, so how far one has come is unknown (-1). A broker without a connection to ZooKeeper does not know who leads, as
one of Kafka's that no controller answers: `ottla cluster status` finds an outage of ZooKeeper that way.

Versions: 1 when voters and observers were last heard of (KIP-836); 2 addresses of the voters and ids of directories,
which are zero here (KIP-853).
"""

from ottla.broker.addresses import can_reach, choose_endpoint
from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode
from ottla.security import rights
from ottla.wire.messages import describe_quorum as messages

REQUIRES = rights.whole(rights.DESCRIBE_CLUSTER)

METADATA_TOPIC = "__cluster_metadata"
UNKNOWN_OFFSET = -1
NO_CONNECTION = "no connection to ZooKeeper, so the metadata cannot change"
NO_MESSAGE = ""
"""What Kafka sends here where there is no error; in other answers it is null."""


def handle(node: Node, call: Call[messages.DescribeQuorumRequest]) -> messages.DescribeQuorumResponse:
    asked = [(topic.topic_name, [each.partition_index for each in topic.partitions]) for topic in call.body.topics]
    if asked != [(METADATA_TOPIC, [0])]:
        refused, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"only {METADATA_TOPIC}-0 has a quorum"
        return answer(
            [answer_topic(name, [answer_error(each, refused, message) for each in indexes]) for name, indexes in asked]
        )
    if not node.is_connected():
        error = answer_error(0, ErrorCode.LEADER_NOT_AVAILABLE, NO_CONNECTION)
        return answer([answer_topic(METADATA_TOPIC, [error])])
    image = node.image
    leader = None if image.controller is None else image.broker(image.controller.broker_id)
    if image.controller is None or leader is None:
        error = answer_error(0, ErrorCode.LEADER_NOT_AVAILABLE, "no broker is the controller")
        return answer([answer_topic(METADATA_TOPIC, [error])])
    end_offset, now_ms = image.version + 1, node.clock.now_ms()
    described = messages.DescribeQuorumResponsePartitionData(
        partition_index=0,
        error_message=NO_MESSAGE,
        leader_id=leader.id,
        leader_epoch=image.controller.epoch,
        high_watermark=end_offset,
        current_voters=[
            messages.ReplicaState(
                replica_id=leader.id,
                log_end_offset=end_offset,
                last_fetch_timestamp=now_ms,
                last_caught_up_timestamp=now_ms,
            )
        ],
        observers=[
            messages.ReplicaState(replica_id=broker.id, log_end_offset=UNKNOWN_OFFSET)
            for broker in image.alive_brokers()
            if broker.id != leader.id
        ],
    )
    response = answer([answer_topic(METADATA_TOPIC, [described])])
    if can_reach(leader, call.client):
        endpoint = choose_endpoint(leader, call.client)
        listener = messages.Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port)
        response.nodes = [messages.Node(node_id=leader.id, listeners=[listener])]
    return response


def answer(topics: list[messages.DescribeQuorumResponseTopicData]) -> messages.DescribeQuorumResponse:
    return messages.DescribeQuorumResponse(error_message=NO_MESSAGE, topics=topics)


def answer_topic(
    name: str, partitions: list[messages.DescribeQuorumResponsePartitionData]
) -> messages.DescribeQuorumResponseTopicData:
    return messages.DescribeQuorumResponseTopicData(topic_name=name, partitions=partitions)


def answer_error(index: int, code: ErrorCode, message: str) -> messages.DescribeQuorumResponsePartitionData:
    return messages.DescribeQuorumResponsePartitionData(partition_index=index, error_code=code, error_message=message)
