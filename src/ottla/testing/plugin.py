"""The pytest plug-in, with fixtures for a broker or a cluster per test, and for a broker that a session shares."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.testing import LocalBroker, LocalCluster

MARKER = "ottla(**settings): start ottla_broker or ottla_cluster with these settings in this test (see ottla.testing)"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.fixture(scope="session")
def ottla_settings() -> dict[str, Any]:
    """The settings of all brokers. To change them, define a fixture of this name in conftest.py."""
    return {}


@pytest.fixture
def ottla_broker(request: pytest.FixtureRequest, ottla_settings: dict[str, Any]) -> "Iterator[LocalBroker]":
    """A broker for this test alone."""
    from ottla.testing import broker

    with broker(**_with_markers(request, ottla_settings)) as local:
        yield local


@pytest.fixture
def ottla_cluster(request: pytest.FixtureRequest, ottla_settings: dict[str, Any]) -> "Iterator[LocalCluster]":
    """A cluster of three brokers for this test alone; `@pytest.mark.ottla(brokers=5)` gives it five."""
    from ottla.testing import cluster

    with cluster(**_with_markers(request, ottla_settings)) as local:
        yield local


def _with_markers(request: pytest.FixtureRequest, settings: dict[str, Any]) -> dict[str, Any]:
    merged = dict(settings)
    for marker in reversed(list(request.node.iter_markers("ottla"))):  # the closest marker comes first and must win
        merged.update(marker.kwargs)
    return merged


@pytest.fixture(scope="session")
def ottla_session_broker(ottla_settings: dict[str, Any]) -> "Iterator[LocalBroker]":
    """A broker for all tests of a session. Each test must use its own topics and clear the faults that it has added."""
    from ottla.testing import broker

    with broker(**ottla_settings) as local:
        yield local
