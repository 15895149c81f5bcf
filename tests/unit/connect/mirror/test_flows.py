"""MirrorMaker 2's configuration file becomes workers and connectors; what is missing is named."""

import pytest

from ottla.connect.connectors.mirror.flows import list_unknown, read_flows
from ottla.connect.errors import BadConfig

CLUSTERS = {"clusters": "A, B", "A.bootstrap.servers": "a:1", "B.bootstrap.servers": "b:2"}


def test_flows() -> None:
    """Heartbeats go to the source too, so that they are mirrored, unless they are switched off."""
    given = {**CLUSTERS, "A->B.enabled": "true", "A->B.topics": "x", "topics": "y", "B.security.protocol": "SSL"}
    forth, back = read_flows(given)
    assert (forth.source, forth.target) == ("A", "B")
    assert forth.worker["bootstrap.servers"] == "b:2"
    assert forth.worker["security.protocol"] == "SSL"
    assert forth.worker["group.id"] == "A-mm2"
    topics = {forth.worker[f"{kind}.storage.topic"] for kind in ("offset", "config", "status")}
    assert topics == {"mm2-offsets.A.internal", "mm2-configs.A.internal", "mm2-status.A.internal"}
    source = forth.connectors["MirrorSourceConnector"]
    assert source["topics"] == "x"
    assert source["source.cluster.bootstrap.servers"] == "a:1"
    assert source["target.cluster.bootstrap.servers"] == "b:2"
    assert list(back.connectors) == ["MirrorHeartbeatConnector"]
    (only,) = read_flows({**given, "emit.heartbeats.enabled": "false"})
    assert list(only.connectors) == ["MirrorSourceConnector", "MirrorCheckpointConnector"]


def test_settings_of_clients() -> None:
    """With an alias for one cluster, also for one kind of its clients; security without one for all clusters."""
    given = {"A->B.enabled": "true", "sasl.mechanism": "PLAIN", "B.sasl.mechanism": "SCRAM-SHA-256"}
    forth, back = read_flows({**CLUSTERS, **given, "A.consumer.fetch.max.bytes": "1", "B.producer.linger.ms": "5"})
    source = forth.connectors["MirrorSourceConnector"]
    assert source["source.cluster.sasl.mechanism"] == back.worker["sasl.mechanism"] == "PLAIN"
    assert source["target.cluster.sasl.mechanism"] == forth.worker["sasl.mechanism"] == "SCRAM-SHA-256"
    assert source["source.consumer.fetch.max.bytes"] == "1"
    assert source["target.producer.linger.ms"] == forth.worker["producer.linger.ms"] == "5"


def test_settings_without_effect_are_found() -> None:
    known = {"A->B.topics": "x", "A.ssl.key.password": "x", "offset.storage.replication.factor": "1", "tasks.max": "2"}
    assert list_unknown({**CLUSTERS, **known, "topics.blacklist": "b", "A->C.enabled": "true"}) == [
        "A->C.enabled",
        "topics.blacklist",
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"clusters": "A"}, "clusters: "),
        ({**CLUSTERS, "B.bootstrap.servers": ""}, "B.bootstrap.servers is missing"),
        (CLUSTERS, "no flow is enabled: set A->B.enabled=true"),
    ],
)
def test_what_is_missing(given: dict[str, str], message: str) -> None:
    with pytest.raises(BadConfig, match="^" + message):
        read_flows(given)
