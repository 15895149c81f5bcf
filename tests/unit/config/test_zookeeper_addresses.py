import pytest

from ottla.config import BrokerConfig, ConfigError
from ottla.config.zookeeper_addresses import parse_zookeeper_connect


@pytest.mark.parametrize(
    ("text", "servers", "path"),
    [
        ("zk1", "zk1:2181", ""),
        ("zk1:2182,zk2/ottla", "zk1:2182,zk2:2181", "/ottla"),
        (" zk1:2181 , zk2:2181, ", "zk1:2181,zk2:2181", ""),
        ("zk1:2181,,zk2:2181/", "zk1:2181,zk2:2181", ""),
        ("zk1:2181/a/b/", "zk1:2181", "/a/b"),
        ("[::1],[fe80::1]:2182/a", "[::1]:2181,[fe80::1]:2182", "/a"),
    ],
)
def test_addresses_are_read_as_zookeepers_own_clients_read_them(text: str, servers: str, path: str) -> None:
    assert parse_zookeeper_connect(text) == (servers, path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (",", "it names no server"),
        ("/ottla", "it names no server"),
        (":2181", "':2181' is not a server"),
        ("zk1:", "'zk1:': the port is not a number between 1 and 65535"),
        ("zk1:abc", "'zk1:abc': the port is not a number"),
        ("zk1:0", "the port is not a number"),
        ("zk1:65536", "the port is not a number"),
        ("::1", "'::1' is not a server"),
        ("[::1", "'[::1' is not a server"),
        ("[::1]2181", "is not a server"),
        ("[]:2181", "is not a server"),
        ("zk 1:2181", "'zk 1:2181' is not a server"),
        ("zk1/a//b", "'/a//b' is not a path in ZooKeeper"),
        ("zk1/..", "'/..' is not a path in ZooKeeper"),
    ],
)
def test_wrong_addresses_are_named_with_the_setting(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as raised:
        BrokerConfig.of({"zookeeper.connect": text})
    assert "zookeeper.connect" in str(raised.value)
    assert reason in str(raised.value)


def test_no_address_is_no_zookeeper() -> None:
    assert BrokerConfig.of({"zookeeper.connect": ""}).zookeeper_connect == ""
