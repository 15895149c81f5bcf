"""The settings of Confluent's JMS and ActiveMQ connectors.

Their URLs name the port at which the broker speaks Java's own protocol. STOMP has a port of its own, `stomp.port`; a
URL with the scheme `stomp` or `stomp+ssl` names it directly.
"""

import codecs
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.connect.connectors.jms.session import BrokerAddress
from ottla.connect.settings.checks import at_least, between, non_empty, one_of, one_of_ignoring_case
from ottla.connect.settings.definition import REQUIRED, Importance, Kind, Setting, Settings

STOMP_PORT: Final = 61613
STOMP_TLS_PORT: Final = 61612
_ADDRESS: Final = re.compile(r"([a-z+]+)://(\[[^\]]+\]|[^:/?,()\s]+)(?::(\d+))?", re.IGNORECASE)
_STOMP: Final = ("stomp", "stomp+nio", "stomp+ssl", "stomp+nio+ssl")
_SCHEMES: Final = ("tcp", "nio", "auto", "ssl", "nio+ssl", "auto+ssl", *_STOMP)
_JNDI: Final = ("org.apache.activemq.jndi.", "org.apache.activemq.artemis.jndi.")
_LOW, _MEDIUM, _HIGH = Importance.LOW, Importance.MEDIUM, Importance.HIGH


def read_address(config: Mapping[str, Any]) -> BrokerAddress:
    """How to reach the broker. ValueError if the URL names none."""
    name = find_url_name(config)
    found = _ADDRESS.findall(config[name] or "")
    if not found:
        raise ValueError(f"{config[name]!r} has no address such as tcp://host:61616 or stomp://host:61613")
    hosts = []
    for scheme, host, port in found:
        if scheme.lower() not in _SCHEMES:
            raise ValueError(f"{scheme}:// is none of {', '.join(_SCHEMES)}")
        is_tls = scheme.lower().endswith("ssl")
        default = config["stomp.port"] or (STOMP_TLS_PORT if is_tls else STOMP_PORT)
        hosts.append((host.strip("[]"), int(port) if port and scheme.lower() in _STOMP else default, is_tls))
    if len({is_tls for _, _, is_tls in hosts}) > 1:
        raise ValueError("either all or none of the addresses can be encrypted")
    user, password = _LOGINS[name]
    return BrokerAddress(
        tuple((host, port) for host, port, _ in hosts),
        hosts[0][2],
        config[user] or None,
        config[password],
        config["stomp.timeout.ms"] / 1000,
        config["stomp.heartbeat.ms"],
        config["ssl.truststore.location"] or None,
    )


def find_url_name(config: Mapping[str, Any]) -> str:
    return next(name for name in _LOGINS if name in config)


_LOGINS: Final = {
    "activemq.url": ("activemq.username", "activemq.password"),
    "java.naming.provider.url": ("java.naming.security.principal", "java.naming.security.credentials"),
}


def _setting(
    name: str, kind: Kind, default: Any, doc: str, check: Any = None, importance: Importance = _LOW
) -> Setting:
    return Setting(name, kind, default, doc, importance, check)


_ACTIVEMQ: Final = (
    _setting("activemq.url", Kind.STRING, REQUIRED, "The address of the broker.", non_empty, _HIGH),
    _setting("activemq.username", Kind.STRING, "", "The user, if the broker wants one.", None, _HIGH),
    _setting("activemq.password", Kind.PASSWORD, None, "The user's password.", None, _HIGH),
)
_JMS: Final = (
    _setting("java.naming.provider.url", Kind.STRING, REQUIRED, "The address of the broker.", non_empty, _HIGH),
    _setting(
        "java.naming.factory.initial",
        Kind.STRING,
        "org.apache.activemq.jndi.ActiveMQInitialContextFactory",
        "The Java class that tells which broker it is: one of ActiveMQ or Artemis.",
        None,
        _HIGH,
    ),
    _setting("connection.factory.name", Kind.STRING, "ConnectionFactory", "Has no effect: there is no JNDI.", None),
    _setting("java.naming.security.principal", Kind.STRING, "", "The user, if the broker wants one.", None, _HIGH),
    _setting("java.naming.security.credentials", Kind.PASSWORD, None, "The user's password.", None, _HIGH),
)
_STOMP_SETTINGS: Final = (
    _setting(
        "stomp.port",
        Kind.INT,
        None,
        f"The port at which the broker speaks STOMP: {STOMP_PORT}, or {STOMP_TLS_PORT} for ssl://, unless given.",
    ),
    _setting("stomp.timeout.ms", Kind.INT, 30_000, "How long to wait for an answer of the broker.", at_least(1)),
    _setting(
        "stomp.heartbeat.ms",
        Kind.INT,
        10_000,
        "How often the connector and the broker tell each other that they are there; 0 for never.",
        at_least(0),
    ),
    _setting("ssl.truststore.location", Kind.STRING, None, "A PEM file of authorities to trust; those of the system."),
    _setting("max.retry.time", Kind.LONG, 3_600_000, "Has no effect: a broker that is away is tried until it is back."),
)
_DESTINATION: Final = (
    _setting("jms.destination.name", Kind.STRING, REQUIRED, "The queue or topic.", non_empty, _HIGH),
    _setting(
        "jms.destination.type",
        Kind.STRING,
        "queue",
        "queue or topic.",
        one_of_ignoring_case("queue", "topic"),
        _HIGH,
    ),
    _setting("character.encoding", Kind.STRING, "UTF-8", "The encoding of texts.", None),
)
_SOURCE: Final = (
    _setting("kafka.topic", Kind.STRING, REQUIRED, "The topic to write to.", non_empty, _HIGH),
    *_DESTINATION,
    _setting("jms.message.selector", Kind.STRING, "", "Which messages to receive, as JMS' selectors say it.", None),
    _setting("jms.subscription.durable", Kind.BOOLEAN, False, "Whether the broker keeps a topic's messages meanwhile."),
    _setting("jms.subscription.name", Kind.STRING, "", "The name of a durable subscription.", None, _MEDIUM),
    _setting(
        "jms.client.id", Kind.STRING, "", "The client's id of a durable subscription; the connector's name by default."
    ),
    _setting(
        "batch.size", Kind.INT, 1024, "Messages of a task that are written in one transaction.", between(1, 100_000)
    ),
    _setting(
        "max.pending.messages",
        Kind.INT,
        4096,
        "Messages that a task may have received and not acknowledged.",
        between(1, 1_000_000),
    ),
    _setting("max.poll.duration", Kind.INT, 60_000, "Has no effect: messages are written when they arrive."),
    _setting("jms.session.acknowledge.mode", Kind.STRING, "client", "client, which is what is always done."),
    _setting("jms.session.transacted", Kind.BOOLEAN, False, "false, which is what is always done."),
)
_SINK: Final = (
    *_DESTINATION,
    _setting(
        "jms.message.format",
        Kind.STRING,
        "string",
        "string or json for text messages, bytes for bytes messages, map for map messages (of ActiveMQ only).",
        one_of("string", "json", "bytes", "map", "avro"),
        _HIGH,
    ),
    _setting("jms.forward.kafka.key", Kind.BOOLEAN, False, "Whether the key becomes the JMSCorrelationID."),
    _setting(
        "jms.forward.kafka.metadata",
        Kind.BOOLEAN,
        False,
        "Whether messages get the properties KAFKA_TOPIC, KAFKA_PARTITION and KAFKA_OFFSET.",
    ),
    _setting("jms.forward.kafka.headers", Kind.BOOLEAN, False, "Whether headers become properties of their names."),
    _setting(
        "jms.producer.time.to.live.ms",
        Kind.LONG,
        0,
        "After how long a message expires; 0 for never.",
        at_least(0),
    ),
    _setting(
        "jms.producer.delivery.mode",
        Kind.STRING,
        "persistent",
        "persistent or non_persistent.",
        one_of("persistent", "non_persistent"),
    ),
    _setting("jms.producer.priority", Kind.INT, 4, "The priority of messages.", between(0, 9)),
    _setting("jms.producer.disable.message.id", Kind.BOOLEAN, False, "false: messages always have ids."),
    _setting("jms.producer.disable.message.timestamp", Kind.BOOLEAN, False, "false: messages always have timestamps."),
)

_ONLY: Final[Mapping[str, Sequence[str]]] = {
    "jms.session.acknowledge.mode": ("client",),
    "jms.session.transacted": ("false",),
    "jms.message.format": ("string", "json", "bytes", "map"),
    "jms.producer.disable.message.id": ("false",),
    "jms.producer.disable.message.timestamp": ("false",),
    "ssl.truststore.type": ("PEM",),
    "ssl.keystore.location": (),
    "use.permissive.schemas": ("false",),
}
"""The values that can be obeyed, of settings that have others."""


def _refuse(config: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    errors: dict[str, Sequence[str]] = {}
    try:
        read_address(config)
    except ValueError as error:
        errors[find_url_name(config)] = [str(error)]
    factory = config.get("java.naming.factory.initial") or _JNDI[0]
    if not factory.startswith(_JNDI):
        errors["java.naming.factory.initial"] = [
            f"{factory} belongs to a broker that is not supported; ActiveMQ and Artemis are, which speak STOMP"
        ]
    try:
        codecs.lookup(config["character.encoding"])
    except LookupError:
        errors["character.encoding"] = [f"there is no encoding {config['character.encoding']}"]
    if config.get("jms.subscription.durable"):
        if config["jms.destination.type"].lower() != "topic":
            errors["jms.subscription.durable"] = ["only a subscription to a topic can be durable"]
        if not config["jms.subscription.name"]:
            errors["jms.subscription.name"] = ["a durable subscription needs a name"]
    return errors


ACTIVEMQ_SOURCE_SETTINGS: Final = Settings((*_ACTIVEMQ, *_SOURCE, *_STOMP_SETTINGS), _refuse, _ONLY)
JMS_SOURCE_SETTINGS: Final = Settings((*_JMS, *_SOURCE, *_STOMP_SETTINGS), _refuse, _ONLY)
ACTIVEMQ_SINK_SETTINGS: Final = Settings((*_ACTIVEMQ, *_SINK, *_STOMP_SETTINGS), _refuse, _ONLY)
JMS_SINK_SETTINGS: Final = Settings((*_JMS, *_SINK, *_STOMP_SETTINGS), _refuse, _ONLY)
