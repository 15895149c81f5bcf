"""Settings of Confluent's connectors mean here what they mean there, or are refused by name."""

import pytest

from ottla.connect.connectors.jms.jms_sink import ActiveMQSink
from ottla.connect.connectors.jms.jms_source import ActiveMQSource, JmsSource
from ottla.connect.connectors.jms.settings import read_address
from ottla.connect.errors import BadConfig
from ottla.connect.plugins.installed import InstalledPlugins
from ottla.connect.settings.parsing import parse

SOURCE = {"activemq.url": "tcp://mq:61616", "jms.destination.name": "q", "kafka.topic": "t"}


@pytest.mark.parametrize(
    ("url", "hosts", "is_encrypted"),
    [
        ("tcp://mq:61616", (("mq", 61613),), False),
        ("ssl://mq:61617?verifyHostName=false", (("mq", 61612),), True),
        ("stomp://mq:1234", (("mq", 1234),), False),
        ("failover:(tcp://a:61616,tcp://b:61616)?randomize=false", (("a", 61613), ("b", 61613)), False),
        ("stomp+ssl://[::1]:1", (("::1", 1),), True),
    ],
)
def test_addresses(url: str, hosts: tuple[tuple[str, int], ...], is_encrypted: bool) -> None:
    address = read_address(parse(ActiveMQSource.settings, {**SOURCE, "activemq.url": url}))
    assert (address.hosts, address.is_encrypted) == (hosts, is_encrypted)


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"activemq.url": "localhost"}, "activemq.url"),
        ({"activemq.url": "amqp://mq:5672"}, "activemq.url"),
        ({"activemq.url": "tcp://a:1,ssl://b:2"}, "activemq.url"),
        ({"jms.subscription.durable": "true"}, "jms.subscription.durable"),
        ({"jms.subscription.durable": "true", "jms.destination.type": "topic"}, "jms.subscription.name"),
        ({"jms.session.acknowledge.mode": "auto"}, "jms.session.acknowledge.mode"),
        ({"character.encoding": "klingon"}, "character.encoding"),
        ({"ssl.keystore.location": "/x.jks"}, "ssl.keystore.location"),
    ],
)
def test_what_cannot_be_obeyed_is_named(more: dict[str, str], name: str) -> None:
    with pytest.raises(BadConfig, match=f"^{name}[:=]"):
        parse(ActiveMQSource.settings, {**SOURCE, **more})


def test_another_broker_is_refused() -> None:
    given = {
        "java.naming.provider.url": "tcp://mq:7222",
        "java.naming.factory.initial": "com.tibco.tibjms.naming.TibjmsInitialContextFactory",
        "jms.destination.name": "q",
        "kafka.topic": "t",
    }
    with pytest.raises(BadConfig, match="belongs to a broker that is not supported"):
        parse(JmsSource.settings, given)


def test_avro_is_refused() -> None:
    given = {"activemq.url": "tcp://mq:61616", "jms.destination.name": "q", "jms.message.format": "avro"}
    with pytest.raises(BadConfig, match=r"jms\.message\.format=avro is not supported"):
        parse(ActiveMQSink.settings, given)


@pytest.mark.parametrize("name", ["ActiveMQSource", "ActiveMqSink", "JmsSource", "JmsSinkConnector"])
def test_names(name: str) -> None:
    assert InstalledPlugins({}).find_plugin({"connector.class": name}).class_name.startswith("io.confluent.connect.")
