"""Two clusters, and connectors that mirror between them in a test."""

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from ottla.client.client import Client
from ottla.connect.connector import Connector
from ottla.connect.connectors.mirror import clusters
from ottla.connect.connectors.mirror.mirror_source import MirrorSource
from ottla.connect.running.topics import TopicGroup, create_topic
from ottla.wire.messages.create_acls import AclCreation
from ottla.wire.messages.describe_acls import DescribeAclsRequest
from tests.connect.runs import RunningConnector, read_records, wait_until
from tests.patience import PATIENCE_S
from tests.spark.topics import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK = {
    f"{name}.interval.seconds": "0"
    for name in (
        "refresh.topics",
        "sync.topic.configs",
        "sync.topic.acls",
        "refresh.groups",
        "emit.checkpoints",
        "sync.group.offsets",
        "emit.heartbeats",
    )
} | {
    f"{name}replication.factor": "1" for name in ("", "offset-syncs.topic.", "checkpoints.topic.", "heartbeats.topic.")
}
A_DAY_MS = 86_400_000
"""So long retention does not run: the timestamps of the records are very old."""
FORTH, BACK = ("A", "B"), ("B", "A")


class Clusters:
    """Two brokers, and connectors that mirror between them."""

    def __init__(self, spark: "SparkSession", a: Broker, b: Broker) -> None:
        self._spark = spark
        self._brokers = {"A": a, "B": b}
        self._stack = ExitStack()
        self._started: list[RunningConnector] = []

    def mirror(self, flow: tuple[str, str], *connectors: type[Connector], **config: str) -> list[RunningConnector]:
        source, target = flow
        settings = {
            "source.cluster.alias": source,
            "target.cluster.alias": target,
            "source.cluster.bootstrap.servers": self._brokers[source].bootstrap,
            "sync.group.offsets.enabled": "true",
            **QUICK,
            **{name.replace("_", "."): text for name, text in config.items()},
        }
        started = []
        for connector in connectors:
            name = f"{source}-{target}-{connector.__name__}"
            run = RunningConnector(self._spark, self._brokers[target].bootstrap, connector, name, settings)
            run.run.start()
            self._stack.callback(run.run.join, PATIENCE_S)
            self._stack.callback(run.run.stop)
            started.append(run)
        self._started += started
        return started

    def describe(self) -> list[object]:
        """What the connectors say."""
        return [(run.name, run.status) for run in self._started]

    def stop(self) -> None:
        self._stack.close()


def make_rows(first: int, count: int, partitions: int = 3) -> list[dict[str, Any]]:
    return [
        {
            "key": f"k{n}" if n % 3 else None,
            "value": f"v{n}" if n % 5 else None,
            "timestamp": 1_000_000 + n,
            "partition": n % partitions,
            "headers": [("n", str(n).encode()), ("empty", None)] if n % 2 else None,
        }
        for n in range(first, first + count)
    ]


def read(broker: Broker, topic: str) -> list[dict[str, Any]]:
    """Records without their offsets, in the order of each partition."""
    rows = read_records(broker, topic)
    return sorted(
        ({name: value for name, value in row.items() if name != "offset"} for row in rows),
        key=lambda row: row["partition"],
    )


def send_in_transaction(broker: Broker, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-writer"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for n in range(first, first + count):
        producer.produce(topic, value=f"job {n}", partition=0)
    producer.commit_transaction(PATIENCE_S)


def rest_of(broker: Broker, topic: str, offset: int) -> list[str]:
    """What a consumer reads that begins at the offset."""
    return [row["value"].decode() for row in read_records(broker, topic) if row["offset"] >= offset]


AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ALLOWED, DENIED = 3, 2
ALL, READ, WRITE, DESCRIBE = 2, 3, 4, 8
TOPIC, GROUP, LITERAL, PREFIXED = 2, 3, 3, 4
ANY = 1


def add_acl(
    client: Client,
    topic: str,
    user: str,
    operation: int,
    permission: int,
    pattern: int = LITERAL,
    resource: int = TOPIC,
) -> None:
    acl = AclCreation(
        resource_type=resource,
        resource_name=topic,
        resource_pattern_type=pattern,
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission_type=permission,
    )
    clusters.create_acls(client, [acl])


def list_acls(client: Client, topic: str = "A.guarded") -> set[tuple[str, int, int]]:
    """User, operation and permission of the ACLs of a topic."""
    request = DescribeAclsRequest(
        resource_type_filter=TOPIC, pattern_type_filter=LITERAL, operation=ANY, permission_type=ANY
    )
    return {
        (acl.principal.removeprefix("User:"), acl.operation, acl.permission_type)
        for resource in client.ask_any(request).resources
        for acl in resource.acls
        if resource.resource_name == topic
    }


COPIED_ACLS = {("reader", READ, ALLOWED), ("owner", READ, ALLOWED), ("stranger", ALL, DENIED)}
"""What a copy of the topic gets of these ACLs."""


def add_acls(client: Client, name: str, *, is_group: bool = False) -> None:
    """ACLs of a topic, with some that its copy must not get; or the right of the reader to use a group."""
    if is_group:
        add_acl(client, name, "reader", READ, ALLOWED, resource=GROUP)
        return
    for user, operation, permission in (
        ("reader", READ, ALLOWED),
        ("writer", WRITE, ALLOWED),
        ("owner", ALL, ALLOWED),
        ("stranger", ALL, DENIED),
    ):
        add_acl(client, name, user, operation, permission)
    add_acl(client, name[:4], "anybody", READ, ALLOWED, PREFIXED)
    add_acl(client, "elsewhere", "reader", READ, ALLOWED)


def check_acls(pair: Clusters, source: Broker, target: Broker) -> None:
    """Who may read may read the mirrored topic too. Nobody may write to it because of that, and what is denied stays
    so. ACLs of other topics and of prefixes are not mirrored."""
    a, b = (Client({"bootstrap.servers": each.bootstrap}) for each in (source, target))
    create_topic(a, "guarded", TopicGroup(partitions=1, replication_factor=1))
    add_acls(a, "guarded")
    pair.mirror(FORTH, MirrorSource, topics="guarded")
    wanted = {*COPIED_ACLS}
    wait_until(lambda: len(list_acls(b)) >= len(wanted), pair.describe)
    add_acl(a, "guarded", "later", DESCRIBE, ALLOWED)
    wanted.add(("later", DESCRIBE, ALLOWED))
    wait_until(lambda: len(list_acls(b)) >= len(wanted), pair.describe)
    assert list_acls(b) == wanted
    for client in (a, b):
        client.close()
