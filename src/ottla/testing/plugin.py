"""The pytest plug-in, with fixtures for a broker per test and for a broker that all tests of a session share."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.testing import LocalBroker

MARKER = "ottla(**settings): start ottla_broker with these settings in this test (see ottla.testing.broker)"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.fixture(scope="session")
def ottla_settings() -> dict[str, Any]:
    """The settings of both brokers. To change them, define a fixture of this name in conftest.py."""
    return {}


@pytest.fixture
def ottla_broker(request: pytest.FixtureRequest, ottla_settings: dict[str, Any]) -> "Iterator[LocalBroker]":
    """A broker for this test alone."""
    from ottla.testing import broker

    settings = dict(ottla_settings)
    for marker in reversed(list(request.node.iter_markers("ottla"))):  # the closest marker comes first and must win
        settings.update(marker.kwargs)
    with broker(**settings) as local:
        yield local


@pytest.fixture(scope="session")
def ottla_session_broker(ottla_settings: dict[str, Any]) -> "Iterator[LocalBroker]":
    """A broker for all tests of a session. Each test must use its own topics and clear the faults that it has added."""
    from ottla.testing import broker

    with broker(**ottla_settings) as local:
        yield local
