"""How many connections an address may have: limited by default, but not for this machine itself."""

from ottla.broker.server_settings import UNLIMITED, find_connection_limits
from ottla.config import BrokerConfig


def test_the_default_limit_is_not_for_this_machine() -> None:
    config = BrokerConfig.of({"max.connections.per.ip.overrides": "10.0.0.1:5,::1:7"})
    assert config.max_connections_per_ip == 1000
    assert find_connection_limits(config) == {"127.0.0.1": UNLIMITED, "::1": 7, "10.0.0.1": 5}


def test_a_limit_that_is_set_is_for_everybody() -> None:
    config = BrokerConfig.of({"max.connections.per.ip": "50"})
    assert find_connection_limits(config) == {}
