"""Headers compared with kio's, the register of APIs, and whole requests and responses."""

import dataclasses
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as KioHeader1
from kio.schema.request_header.v2.header import RequestHeader as KioHeader2
from kio.serial import entity_writer

from ottla.wire import frames
from ottla.wire.malformed import Malformed
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.unit.wire.kio_messages import kio_class


def kio_header(header_class: Any, **values: Any) -> bytes:
    names = {field.name for field in dataclasses.fields(header_class)}
    buffer = io.BytesIO()
    header = header_class(**{name: value for name, value in values.items() if name in names})
    entity_writer(header_class)(buffer, header)
    return buffer.getvalue()


def test_headers_are_those_that_kio_names() -> None:
    """For every API and version, the header of request and response is the one kio has for it."""
    for api in frames.apis():
        for version in api.versions:
            theirs = kio_class(api.request, version).__header_schema__
            ours = KioHeader2 if version >= api.flexible_from else KioHeader1
            assert theirs is ours, (api, version)
            expected = kio_header(kio_class(api.response, version).__header_schema__, correlation_id=9)
            assert frames.response_header(api, version, 9) == expected, (api, version)


@given(st.sampled_from(frames.apis()), st.data(), st.one_of(st.none(), st.text(max_size=40)))
def test_request_headers_agree_with_kio(api: frames.Api, data: st.DataObject, client_id: str | None) -> None:
    """Any header that kio writes is read, with the body's position after it."""
    version = data.draw(st.sampled_from(api.versions))
    correlation = data.draw(st.integers(-(2**31), 2**31 - 1))
    encoded = kio_header(
        KioHeader2 if version >= api.flexible_from else KioHeader1,
        request_api_key=api.key,
        request_api_version=version,
        correlation_id=correlation,
        client_id=client_id,
    )
    for frame in (encoded + b"body", memoryview(encoded + b"body")):
        header = frames.read_request_header(frame)
        assert header == (api.key, version, correlation, client_id, len(encoded))
        assert frames.correlation_id(frame) == correlation


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        bytes(7),
        b"\0\x03\0\x0c\0\0\0\1\0\x05abc",  # client id longer than the frame
        b"\0\x03\0\x08\0\0\0\1\0\x05abc",  # the same, with nothing to follow
        b"\0\x03\0\x0c\0\0\0\1\xff\xfe",  # negative length
        b"\0\x03\0\x0c\0\0\0\1\0\x01\xff\0",  # no UTF-8
        b"\0\x03\0\x0c\0\0\0\1\0\x01a",  # no tagged fields
        b"\0\x03\0\x0c\0\0\0\1\0\x01a\x01\x01\x7f",  # tagged field longer than the frame
        b"\x03\xe7\0\0\0\0\0\1\0\x01a",  # unknown API
    ],
)
def test_malformed_headers(frame: bytes) -> None:
    """Any input raises only Malformed."""
    with pytest.raises(Malformed):
        frames.read_request_header(frame)


def test_short_frames() -> None:
    """Even the first fields may be missing."""
    with pytest.raises(Malformed):
        frames.correlation_id(b"\0\x03\0\x0c\0\0\0")


def test_tagged_fields_in_a_header_are_skipped() -> None:
    """A newer client's header may have fields that we do not know."""
    frame = b"\0\x03\0\x0c\0\0\0\1\0\x01a" + b"\x01\x07\x02zz" + b"body"
    assert frames.read_request_header(frame).end == len(frame) - 4


def test_a_newer_version_of_api_versions_can_be_read() -> None:
    """Its header is that of the flexible versions, so the client can be told what we have."""
    header = frames.read_request_header(b"\0\x12\0\x63\0\0\0\1\xff\xff\0")
    assert (header.api_key, header.api_version, header.client_id, header.end) == (18, 99, None, 11)


def test_requests_and_responses_of_a_client() -> None:
    """What a client encodes the broker decodes, and the other way round."""
    api = frames.find_api_by_folder("heartbeat")
    request = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
    for version in api.versions:
        encoded = frames.encode_request(request, version, 42, "me")
        assert int.from_bytes(encoded[:4], "big") == len(encoded) - 4
        header = frames.read_request_header(encoded[4:], api)
        assert (header.correlation_id, header.client_id) == (42, "me")
        assert frames.decode_request(api, version, encoded[4:], header.end) == request
        response = HeartbeatResponse(error_code=27)
        answer = frames.encode_response(api, version, response, frames.response_header(api, version, 42))
        assert frames.decode_response(HeartbeatResponse, version, answer) == (42, response)


def test_the_answer_to_api_versions_has_the_old_header() -> None:
    """A client that does not know our versions yet can always read it."""
    api = frames.api(18)
    assert frames.response_header(api, 4, 7) == b"\0\0\0\x07"
    answer = frames.encode_response(api, 4, ApiVersionsResponse(), b"\0\0\0\x07")
    assert frames.decode_response(ApiVersionsResponse, 4, answer) == (7, ApiVersionsResponse())
    assert frames.encode_request(ApiVersionsRequest(), 4, 7, None)[-3:] == b"\x01\x01\x00"


def test_truncated_responses() -> None:
    """A response that ends within its header is refused."""
    for data in (b"", b"\0\0\0", b"\0\0\0\1", b"\0\0\0\1\x01"):
        with pytest.raises(Malformed):
            frames.decode_response(HeartbeatResponse, 4, data)


def test_apis_are_found_by_key_and_by_folder() -> None:
    """An API is found by key and by folder; unknown keys are Malformed; classes are those of the module."""
    assert frames.api(12) is frames.find_api_by_folder("heartbeat")
    assert frames.api(12).request is HeartbeatRequest
    assert frames.find_api_of(HeartbeatRequest()).response is HeartbeatResponse
    assert frames.find_api_of(SaslHandshakeRequest()).flexible_from > max(frames.api(17).versions)
    with pytest.raises(Malformed):
        frames.api(4)
    assert [api.key for api in frames.apis()] == sorted(api.key for api in frames.apis())


def test_a_request_without_records_has_a_limit_of_its_own() -> None:
    # Four million empty names are four megabytes on the wire and some hundreds of them as objects.
    encoded = frames.encode_request(HeartbeatRequest(), 4, 1, None)[4:]
    end = frames.read_request_header(encoded).end
    of = frames.find_api_of(HeartbeatRequest())
    at_the_limit = encoded + bytes(frames.REQUEST_BYTES_MAX - len(encoded))
    assert frames.decode_request(of, 4, at_the_limit, end) == HeartbeatRequest()
    with pytest.raises(Malformed, match="without records"):
        frames.decode_request(of, 4, at_the_limit + b"\0", end)
