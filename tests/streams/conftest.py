"""A broker for all tests of this folder; each test has topics and an app of its own."""

import pytest

from ottla.testing import LocalBroker


@pytest.fixture
def broker(ottla_session_broker: LocalBroker) -> LocalBroker:
    return ottla_session_broker
