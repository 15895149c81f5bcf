"""Logins on the metrics page: by listener, the first one of a connection and those that follow."""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from ottla.errors import ErrorCode
from ottla.testing import LocalBroker
from tests.clients.secured import Certificates, port_of, secured_broker
from tests.raw_client import RawClient
from tests.scenarios.test_authentication import METADATA, PLAIN_TOKEN, begin, connect, log_in, send_token
from tests.scenarios.test_metrics import metrics

NAME = "kafka_server_socketservermetrics"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    with secured_broker(certificates, **{"metrics.port": "0"}) as broker:
        yield broker


def read(broker: LocalBroker, what: str, listener: str = "SASL_PLAINTEXT") -> float:
    return metrics(broker).value(f"{NAME}_{what}_total", listener=listener)


def test_logins_and_failed_ones_are_counted(broker: LocalBroker) -> None:
    before, failed_before = read(broker, "successful_authentication"), read(broker, "failed_authentication")
    with connect(broker) as client:
        assert log_in(client).error_code == ErrorCode.NONE
    with connect(broker) as client:
        assert log_in(client, password="wrong").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with connect(broker) as client:
        assert begin(client, "UNKNOWN") == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert read(broker, "successful_authentication") == before + 1
    assert read(broker, "failed_authentication") == failed_before + 2
    assert read(broker, "successful_reauthentication") == read(broker, "failed_reauthentication") == 0


def test_further_logins_of_a_connection_are_counted_for_themselves(broker: LocalBroker) -> None:
    before = read(broker, "successful_authentication")
    with connect(broker) as client:
        log_in(client)
        broker.advance(seconds=2)  # a client may authenticate again once a second
        assert begin(client) == ErrorCode.NONE
        assert send_token(client, PLAIN_TOKEN).error_code == ErrorCode.NONE
        broker.advance(seconds=2)
        assert begin(client) == ErrorCode.NONE
        assert send_token(client, b"\0alice\0wrong").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert read(broker, "successful_authentication") == before + 1
    assert read(broker, "successful_reauthentication") == 1
    assert read(broker, "failed_reauthentication") == 1


def test_a_handshake_that_is_none_counts_at_its_listener(broker: LocalBroker) -> None:
    before = read(broker, "failed_authentication", "SSL")
    with RawClient("127.0.0.1", port_of(broker, "SSL")) as client, suppress(ConnectionError):
        client.send_request(METADATA, 12)  # plain text, where a handshake is asked for
        client.read_frame()
    assert read(broker, "failed_authentication", "SSL") == before + 1
