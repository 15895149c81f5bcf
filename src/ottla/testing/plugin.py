"""The pytest plug-in: fixtures for a broker per test, and for one that all tests of a session share."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.testing import LocalBroker

MARKER = "ottla(**settings): what ottla_broker is started with in this test, as for ottla.testing.broker"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.fixture(scope="session")
def ottla_settings() -> dict[str, Any]:
    """What both brokers are started with. Define a fixture of this name in conftest.py to change it."""
    return {}


@pytest.fixture
def ottla_broker(request: pytest.FixtureRequest, ottla_settings: dict[str, Any]) -> "Iterator[LocalBroker]":
    """A broker for this test alone."""
    from ottla.testing import broker

    settings = dict(ottla_settings)
    for marker in reversed(list(request.node.iter_markers("ottla"))):  # the marker nearest to the test comes first
        settings.update(marker.kwargs)
    with broker(**settings) as local:
        yield local


@pytest.fixture(scope="session")
def ottla_session_broker(ottla_settings: dict[str, Any]) -> "Iterator[LocalBroker]":
    """One broker for all tests of a session: each uses topics of its own, and clears the faults it has ordered."""
    from ottla.testing import broker

    with broker(**ottla_settings) as local:
        yield local
