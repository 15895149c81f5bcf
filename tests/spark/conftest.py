"""One broker for all tests of this folder; each test has topics of its own. `spark_session.py` has the session."""

import pytest

from ottla.testing import LocalBroker


@pytest.fixture
def broker(ottla_session_broker: LocalBroker) -> LocalBroker:
    return ottla_session_broker
