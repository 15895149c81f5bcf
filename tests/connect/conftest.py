"""A broker for all tests of this folder; each test has topics and connectors of its own."""

from collections.abc import Iterator

import pytest

import ottla.testing
from ottla.testing import LocalBroker


@pytest.fixture(scope="session")
def broker() -> Iterator[LocalBroker]:
    """Not the broker that tests of other folders share: their topics have the same names."""
    with ottla.testing.broker() as running:
        yield running
