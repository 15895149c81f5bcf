"""How long commands wait for an answer."""

import argparse

import pytest

from ottla.cli.client import OPERATION_S, ClusterAccess


@pytest.mark.parametrize("name", ["request.timeout.ms", "socket.timeout.ms"])
def test_a_command_waits_longer_than_a_broker_may_take(name: str) -> None:
    """Or the broker's error, with its reason, would come too late. The user's own limit counts more."""

    def read_limit_s(*settings: str) -> float:
        given = argparse.Namespace(bootstrap="here:9", client_settings=settings, command_config=None, profile=None)
        with ClusterAccess(given).open_own_client() as own:
            return own.settings.request_timeout_s

    assert read_limit_s() > OPERATION_S
    assert read_limit_s(f"{name}=7000") == 7
