"""Creating and deleting topics: Kafka's checks, Kafka's error codes, and changes that fit the image."""

from random import Random

import pytest

from ottla.cluster import changes as change
from ottla.cluster import encoding
from ottla.cluster.changes import ConfigResource, Endpoint
from ottla.cluster.image import EMPTY, Image
from ottla.cluster.snapshots import write_snapshot
from ottla.cluster.topics import (
    NewTopic,
    check_name,
    create_topic,
    create_topics,
    delete_topic,
    is_internal,
    limit_replicas,
    new_topic_id,
)
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError

CONFIG = BrokerConfig.of({"num.partitions": "3"})


def cluster(brokers: int, fenced: tuple[int, ...] = ()) -> Image:
    image = EMPTY
    for broker_id in range(1, brokers + 1):
        endpoint = Endpoint("PLAINTEXT", "localhost", 9091 + broker_id, "PLAINTEXT")
        register = change.RegisterBroker(broker_id, (bytes([broker_id]) * 16,), (endpoint,))
        image = image.replay(image.version + 1, [register])
        if broker_id not in fenced:
            image = image.replay(image.version + 1, [change.UnfenceBroker(broker_id, image.version)])
    return image


def created(image: Image, topic: NewTopic, config: BrokerConfig = CONFIG) -> Image:
    return image.replay(image.version + 1, create_topic(image, topic, config, Random(1)).changes)


def refusal(image: Image, topic: NewTopic) -> KafkaError:
    with pytest.raises(KafkaError) as refused:
        create_topic(image, topic, CONFIG, Random(1))
    return refused.value


def test_a_topic_with_defaults() -> None:
    """-1 takes num.partitions and default.replication.factor of the broker; every partition has a leader in sync."""
    image = created(cluster(1), NewTopic("orders"))
    topic = image.topic("orders")
    assert topic is not None
    assert len(topic.partitions) == 3
    assert all((p.replicas, p.isr, p.leader, p.leader_epoch) == ((1,), (1,), 1, 0) for p in topic.partitions)
    assert image.topic_by_id(topic.id) is topic


def test_what_was_created_is_told() -> None:
    """The answer of CreateTopics has id, numbers and settings."""
    topic = NewTopic("a", 2, 1, configs={"retention.ms": "5"})
    decision = create_topic(cluster(1), topic, CONFIG, Random(1))
    result = decision.result
    assert (result.name, result.partitions, result.replication_factor) == ("a", 2, 1)
    assert result.configs == {"retention.ms": "5"}
    image = cluster(1).replay(3, decision.changes)
    assert dict(image.config(ConfigResource.TOPIC, "a")) == {"retention.ms": "5"}


def test_an_assignment_is_kept_as_given() -> None:
    """The first alive replica leads; a fenced one is not in sync."""
    image = created(cluster(3, fenced=(2,)), NewTopic("a", assignments={1: [3, 1], 0: [2, 3]}))
    first, second = image.topics_by_name["a"].partitions
    assert (first.replicas, first.isr, first.leader) == ((2, 3), (3,), 3)
    assert (second.replicas, second.isr, second.leader) == ((3, 1), (3, 1), 3)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * 249])
def test_good_names(name: str) -> None:
    """What Kafka takes."""
    check_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ü", "a\n", "a:b", "a\x00"])
def test_bad_names(name: str) -> None:
    """What Kafka refuses, with INVALID_TOPIC_EXCEPTION and a reason."""
    error = refusal(cluster(1), NewTopic(name))
    assert error.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "cannot be the name of a topic: " in error.message


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (NewTopic("there"), ErrorCode.TOPIC_ALREADY_EXISTS, "topic 'there' already exists"),
        (
            NewTopic("a_b"),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "topic 'a_b' collides with topic 'a.b': '.' and '_' count as the same character",
        ),
        (
            NewTopic("__cluster_metadata"),
            ErrorCode.INVALID_REQUEST,
            "'__cluster_metadata' is the metadata log of the broker",
        ),
        (NewTopic("n", 0), ErrorCode.INVALID_PARTITIONS, "a topic needs at least 1 partition, not 0"),
        (NewTopic("n", 0, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "a topic needs at least 1 replica, not 0"),
        (NewTopic("n", -2), ErrorCode.INVALID_PARTITIONS, "a topic needs at least 1 partition, not -2"),
        (NewTopic("n", 10_001), ErrorCode.POLICY_VIOLATION, "10001 partitions; 10000 are the limit"),
        (NewTopic("n", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "a topic needs at least 1 replica, not 0"),
        (NewTopic("n", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR, "4 replicas need 4 brokers; 3 are registered"),
        (
            NewTopic("n", 1, -1, {0: (1,)}),
            ErrorCode.INVALID_REQUEST,
            "give either an assignment of replicas, or numbers of partitions and replicas, not both",
        ),
        (
            NewTopic("n", assignments={1: (1,)}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions must be numbered from 0 without a gap",
        ),
        (NewTopic("n", assignments={0: ()}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 0 has no replica"),
        (
            NewTopic("n", assignments={0: (1, 1)}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partition 0 names a broker twice: [1, 1]",
        ),
        (
            NewTopic("n", assignments={0: (1,), 1: (1, 2)}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "every partition must have the same number of replicas",
        ),
        (
            NewTopic("n", assignments={0: (9,)}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partition 0: there is no broker 9",
        ),
        (
            NewTopic("n", assignments={0: (3,)}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partition 0: none of the brokers [3] is alive",
        ),
        (
            NewTopic("n", configs={"segment.byte": "1"}),
            ErrorCode.INVALID_CONFIG,
            "unknown topic setting 'segment.byte'; did you mean 'segment.bytes'?",
        ),
        (
            NewTopic("n", configs={"segment.ms": "60000", "retention.ms": None, "flush.ms": None}),
            ErrorCode.INVALID_CONFIG,
            "no value for flush.ms, retention.ms; leave out a setting to have its default",
        ),
        (
            NewTopic("n", configs={"segment.bytes": "9"}),
            ErrorCode.INVALID_CONFIG,
            "segment.bytes: 9 is below the minimum 1048576",
        ),
    ],
    ids=lambda value: value.name if isinstance(value, ErrorCode) else "",
)
def test_what_is_refused(topic: NewTopic, code: ErrorCode, message: str) -> None:
    """Kafka's codes, and a reason that a person can use."""
    image = created(created(cluster(3, fenced=(3,)), NewTopic("there")), NewTopic("a.b"))
    error = refusal(image, topic)
    assert (error.code, error.message) == (code, message)


def test_ten_thousand_partitions_fit_one_entry() -> None:
    """Compressed; an assignment of many replicas may still be too large."""
    image = cluster(3)
    decision = create_topic(image, NewTopic("big", 10_000, 3), CONFIG, Random(1))
    assert len(encoding.encode(decision.changes)) < encoding.ENTRY_BYTES_MAX // 5
    image = image.replay(image.version + 1, encoding.decode(encoding.encode(decision.changes)))
    assert len(image.topics_by_name["big"].partitions) == 10_000
    source = Random(2)
    many = list(range(1, 201))
    wide = NewTopic("wide", assignments={number: source.sample(many, 200) for number in range(3000)})
    error = refusal(cluster(200), wide)
    assert error.code is ErrorCode.POLICY_VIOLATION
    assert error.message == "topic 'wide' with 3000 partitions is too large to create at once; add partitions later"


def test_brokers_that_are_away_are_followers_if_the_others_do_not_suffice() -> None:
    """As in Kafka: a topic can be created while a broker is restarted. Who is away is neither leader nor in sync."""
    image = created(cluster(3, fenced=(3,)), NewTopic("a", 4, 3))
    for state in image.topics_by_name["a"].partitions:
        assert (set(state.replicas[:2]), state.replicas[2], set(state.isr)) == ({1, 2}, 3, {1, 2})
        assert state.leader == state.replicas[0]
    image = created(image, NewTopic("b", 4, 2))
    assert all(set(state.replicas) == {1, 2} for state in image.topics_by_name["b"].partitions)
    image = image.replay(image.version + 1, [change.BeginShutdown(2, image.brokers[2].epoch)])
    image = created(image, NewTopic("c", 1, 2))
    assert (image.topics_by_name["c"].partitions[0].isr, image.topics_by_name["c"].partitions[0].leader) == ((1,), 1)
    nobody = refusal(cluster(2, fenced=(1, 2)), NewTopic("d", 1, 1))
    assert nobody.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_many_topics_are_one_entry() -> None:
    """What is wrong with one of them does not concern the others; names are compared within the request too."""
    asked = [NewTopic(f"t{number}") for number in range(500)]
    asked[3:3] = [NewTopic("a b"), NewTopic("x.y"), NewTopic("x_y"), NewTopic("t0")]
    image = cluster(2)
    decision = create_topics(image, asked, CONFIG, Random(1))
    codes = [result.code for result in decision.result if isinstance(result, KafkaError)]
    assert codes == [
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_ALREADY_EXISTS,
    ]
    image = image.replay(image.version + 1, decision.changes)
    assert len(image.topics_by_name) == 501
    assert [each.name for each in decision.result if not isinstance(each, KafkaError)][3:5] == ["x.y", "t3"]


def test_topics_that_do_not_fit_are_left_for_the_next_entry() -> None:
    """Each call takes at least one, and no entry is too large."""
    image = cluster(3)
    asked = [NewTopic(f"t{number}", 5000, 3) for number in range(9)]
    entries = 0
    while asked:
        decision = create_topics(image, asked, CONFIG, Random(entries))
        assert len(encoding.encode(decision.changes)) < encoding.ENTRY_BYTES_MAX
        image = image.replay(image.version + 1, decision.changes)
        asked = asked[len(decision.result) :]
        entries += 1
    assert len(image.topics_by_name) == 9
    assert 2 <= entries <= 5
    text = [NewTopic(f"c{number}", configs={"compression.type": "gzip"}) for number in range(3000)]
    assert len(encoding.encode(create_topics(image, text, CONFIG, Random(1)).changes)) < encoding.ENTRY_BYTES_MAX


def test_delete() -> None:
    """By id; an id that is not there is UNKNOWN_TOPIC_ID."""
    image = created(cluster(1), NewTopic("a"))
    topic = image.topics_by_name["a"]
    decision = delete_topic(image, topic.id)
    assert decision.result is topic
    gone = image.replay(image.version + 1, decision.changes)
    assert gone.topic("a") is None
    with pytest.raises(KafkaError) as refused:
        delete_topic(gone, topic.id)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_ID


def test_internal_topics() -> None:
    """Known by name; their replicas are no more than there are brokers."""
    assert is_internal("__consumer_offsets")
    assert not is_internal("__mine")
    assert [limit_replicas(cluster(brokers), 3) for brokers in (0, 1, 2, 4)] == [1, 1, 2, 3]


def test_topic_ids_are_usable_everywhere() -> None:
    """Never one that is taken or that Kafka reserves, nor one that a command line takes for an option."""

    class Scripted(Random):
        script = [bytes(16), bytes(15) + b"\x01", b"\xf8" + bytes(15), b"\x06" * 16, b"\x07" * 16]  # noqa: RUF012

        def randbytes(self, n: int) -> bytes:
            return self.script.pop(0)

    taken = EMPTY.replay(1, [change.CreateTopic(b"\x06" * 16, "a")])
    assert new_topic_id(taken, Scripted()) == b"\x07" * 16


def cordon(image: Image, broker_id: int, value: str) -> Image:
    setting = change.SetConfig(ConfigResource.BROKER, str(broker_id), "cordoned.log.dirs", value)
    return image.replay(image.version + 1, [setting])


@pytest.mark.parametrize("value", ["*", "/data"])
def test_a_cordoned_broker_gets_no_replicas(value: str) -> None:
    image = cordon(cluster(3), 2, value)
    topic = created(image, NewTopic("orders", 6, 2)).topic("orders")
    assert topic is not None
    assert {member for state in topic.partitions for member in state.replicas} == {1, 3}
    error = refusal(image, NewTopic("wide", 1, 3))
    assert error.code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert str(error).endswith("2 are registered, besides 1 whose directories are all cordoned")
    assert refusal(image, NewTopic("chosen", assignments={0: (1, 2)})).code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert limit_replicas(image, 3) == 2
    everywhere = cordon(cordon(image, 1, value), 3, value)
    assert refusal(everywhere, NewTopic("none", 1, 1)).code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert limit_replicas(everywhere, 3) == 1


def test_a_broker_is_cordoned_as_it_was_started_unless_a_setting_says_otherwise() -> None:
    image = cluster(2)
    register = change.RegisterBroker(2, (bytes([2]) * 16,), (), cordoned=True)
    image = image.replay(image.version + 1, [register])
    image = image.replay(image.version + 1, [change.UnfenceBroker(2, image.version)])
    image = EMPTY.replay(image.version, write_snapshot(image))  # as from a snapshot
    assert limit_replicas(image, 2) == 1
    assert limit_replicas(cordon(image, 2, ""), 2) == 2
