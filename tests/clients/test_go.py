"""A Go client, franz-go. Skipped, with the reason, where there is no Go or its modules are out of reach."""

from random import Random

import pytest

from ottla.testing import LocalBroker
from tests.clients import confluent, franz, logins
from tests.clients.messages import CODECS, Delivery, group_by_partition, messages
from tests.needs import skip_without

PARTITIONS = 3


@pytest.fixture(scope="module", autouse=True)
def go_client() -> None:
    if reason := franz.explain_missing():
        skip_without("the Go client", reason)


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_in_both_directions(codec: str, broker: LocalBroker, topic: str, seed: int) -> None:
    # Keys, values, headers and times stay as they were sent, from Go to librdkafka and back.
    for number, (sender, receiver) in enumerate(((franz, confluent), (confluent, franz), (franz, franz))):
        name = f"{topic}-{number}"
        broker.create_topic(name, PARTITIONS)
        sent = messages(Random(seed), 200, PARTITIONS)
        sender.send(broker.bootstrap, name, sent, Delivery(codec, idempotent=True))
        received = receiver.receive(broker.bootstrap, name, PARTITIONS, len(sent))
        assert group_by_partition(received) == group_by_partition(sent)


@pytest.mark.parametrize("acks", (-1, 1, 0))
def test_every_kind_of_acknowledgement(acks: int, broker: LocalBroker, topic: str, seed: int) -> None:
    # The producer is not idempotent, and its first record creates the topic.
    sent = messages(Random(seed), 20, 1)
    franz.send(broker.bootstrap, topic, sent, Delivery(acks=acks))
    assert franz.receive(broker.bootstrap, topic, 1, len(sent)) == sent


def test_admin_calls(broker: LocalBroker, topic: str) -> None:
    # A topic is created, described and altered, gets partitions, has its oldest records deleted, and is deleted.
    assert franz.run("admin", **logins.franz(broker.bootstrap), Bootstrap=broker.bootstrap, Topic=topic) == {
        "Created": 2,
        "Retention": "60000",
        "Altered": "70000",
        "Grown": 3,
        "LowWater": 1,
        "HighWater": 2,
        "CreatedAgain": "TOPIC_ALREADY_EXISTS: Topic with this name already exists.",
        "Left": False,
    }
