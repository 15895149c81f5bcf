"""MirrorMaker 2's configuration file becomes workers and connectors; what is missing is named."""

import pytest

from ottla.connect.connectors.mirror.flows import read_flows
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
    assert forth.worker["offset.storage.topic"] == "mm2-offsets.A.internal"
    source = forth.connectors["MirrorSourceConnector"]
    assert source["topics"] == "x"
    assert source["source.cluster.bootstrap.servers"] == "a:1"
    assert source["target.cluster.bootstrap.servers"] == "b:2"
    assert list(back.connectors) == ["MirrorHeartbeatConnector"]
    (only,) = read_flows({**given, "emit.heartbeats.enabled": "false"})
    assert list(only.connectors) == ["MirrorSourceConnector", "MirrorCheckpointConnector"]


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
