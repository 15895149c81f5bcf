"""Every version of every API that the broker advertises, and versions that it does not have."""

import struct

import pytest

from ottla.broker.handler_table import TELEMETRY, HandlerTable
from ottla.errors import ErrorCode
from ottla.testing import LocalBroker
from ottla.wire import fetch, frames, produce
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.raw_client import RawClient
from tests.scenarios.client_calls import append, connect, decode_values, find_topic_id, make_batch
from tests.scenarios.every_request import (
    REFUSALS,
    REQUESTS,
    VERSIONS,
    ask_until_settled,
    build_request,
    errors_in,
)

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_every_version_is_answered_in_its_own_form(api: str, version: int, client: RawClient, topic: str) -> None:
    # The answer can be decoded to its last byte, has no unexpected error, and the next request is answered too. An API
    # without a request in the table is sent an empty one, whose answer may be an error.
    append(client, topic, b"one")
    answer = ask_until_settled(client, build_request(api, version, topic, find_topic_id(client, topic)), version)
    if api in REQUESTS:
        assert set(errors_in(answer)) <= REFUSALS.get(api, set()), answer
    assert client.request(ApiVersionsRequest(), 0).error_code == 0


@pytest.mark.parametrize("version", produce.VERSIONS)
@pytest.mark.parametrize("acks", (-1, 1, 0))
def test_every_version_of_produce(version: int, acks: int, client: RawClient, topic: str) -> None:
    # The batch is accepted, answered unless acks is 0, and stored.
    target = find_topic_id(client, topic) if version >= produce.TOPIC_ID_FROM else topic
    result = client.produce(target, 0, make_batch(b"one", b"two"), acks, version)
    if acks:
        assert result is not None
        assert (result.error_code, result.base_offset) == (0, 0)
        assert result.log_start_offset == (0 if version >= 5 else -1)
    else:
        assert result is None
    assert decode_values(client.fetch(topic, 0, 0)) == [b"one", b"two"]


@pytest.mark.parametrize("version", fetch.VERSIONS)
def test_every_version_of_fetch(version: int, client: RawClient, topic: str) -> None:
    # Records and the three offsets of a partition; the topic by name below version 13, by id from there.
    append(client, topic, b"one", b"two")
    target = find_topic_id(client, topic) if version >= fetch.TOPIC_ID_FROM else topic
    fetched = client.fetch(target, 0, 0, version)
    assert decode_values(fetched) == [b"one", b"two"]
    assert (fetched.high_watermark, fetched.last_stable_offset) == (2, 2)
    assert fetched.log_start_offset == (0 if version >= 5 else -1)


def test_api_versions_lists_exactly_the_handlers(client: RawClient) -> None:
    # With their versions, except that Produce is listed from 0 although 0 to 2 are refused (KAFKA-18659). Telemetry is
    # listed only by a broker with a metrics port.
    answer = client.request(ApiVersionsRequest(), 0)
    advertised = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    handlers = [handler for handler in HandlerTable().values() if handler.api.name not in TELEMETRY]
    spoken = {handler.api.key: (handler.versions[0], handler.versions[-1]) for handler in handlers}
    assert advertised == spoken | {PRODUCE: (0, produce.VERSIONS[-1])}


@pytest.mark.parametrize("version", (5, 6, 99, 32767, -1))
def test_a_future_api_versions_request_is_answered_in_version_0(version: int, client: RawClient) -> None:
    # UNSUPPORTED_VERSION with our ranges, so that the client can ask again on the same connection.
    client.send_frame(struct.pack(">hhih", API_VERSIONS, version, 7, -1) + b"\x00 whatever the future holds")
    correlation_id, answer = frames.decode_response(ApiVersionsResponse, 0, client.read_frame())
    assert (correlation_id, answer.error_code) == (7, ErrorCode.UNSUPPORTED_VERSION)
    (own,) = [each for each in answer.api_keys if each.api_key == API_VERSIONS]
    assert (own.min_version, own.max_version) == (0, 4)
    assert client.request(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4).error_code == 0


@pytest.mark.parametrize(
    ("api_key", "version"),
    [(METADATA, 14), (METADATA, -1), (PRODUCE, 2), (PRODUCE, 14), (FETCH, 3), (FETCH, 19), (4, 0), (999, 0), (-1, 0)],
)
def test_an_unknown_api_or_version_closes_the_connection(
    api_key: int, version: int, shared_broker: LocalBroker, client: RawClient
) -> None:
    # As in Kafka: there is no form in which it could be answered. Other connections are not disturbed.
    with connect(shared_broker) as other:
        other.send_frame(struct.pack(">hhih", api_key, version, 1, -1) + bytes(20))
        assert other.is_closed_by_peer()
    assert client.request(ApiVersionsRequest(), 0).error_code == 0


@pytest.mark.parametrize(("name", "version"), [("", ""), ("", "1"), ("a", ""), ("-a", "1"), ("a b", "1"), ("a", "1\n")])
def test_an_invalid_name_of_client_software_is_refused(name: str, version: str, client: RawClient) -> None:
    # KIP-511: INVALID_REQUEST, and the connection stays.
    answer = client.request(ApiVersionsRequest(client_software_name=name, client_software_version=version), 3)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert client.request(ApiVersionsRequest(), 2).error_code == 0
