"""Limits for single addresses, as they are written in the settings."""

import pytest

from ottla.config import BrokerConfig, ConfigError
from ottla.config.overrides import parse_connection_limits

NAME = "max.connections.per.ip.overrides"


def test_addresses_and_names_in_any_spelling() -> None:
    # Addresses are stored as a socket returns them. Blanks and empty entries do not count.
    text = "127.0.0.1:200, Host.Example:100,::1:3,[2001:DB8:0:0::1]:0,"
    assert parse_connection_limits(text) == {"127.0.0.1": 200, "host.example": 100, "::1": 3, "2001:db8::1": 0}
    assert parse_connection_limits("") == {}


@pytest.mark.parametrize("text", ["127.0.0.1", "127.0.0.1:", ":5", "127.0.0.1:-1", "127.0.0.1:x", "a:1,A:2", "a:²"])
def test_an_invalid_entry_is_refused_with_the_name_of_the_setting(text: str) -> None:
    # It is refused at the start, and when it is set at run time.
    with pytest.raises(ConfigError, match=NAME):
        BrokerConfig.of({NAME: text})
