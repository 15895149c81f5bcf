"""The requests of the benchmark are valid by Kafka's schema, and a refusal does not count as an answer."""

import io
import struct
from importlib import import_module

import pytest
from kio.schema.request_header.v2.header import RequestHeader
from kio.serial import entity_reader

from benchmarks.loads.small_requests import CORRELATION_AT, KINDS, WrongAnswer, build_frames
from ottla.wire import frames as wire
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponseTopic


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_is_what_the_schema_says(kind: str) -> None:
    # Another implementation reads the request back to the last byte. The correlation id is where the benchmark writes
    # it.
    (frame,) = build_frames([kind], "orders", "written")
    request = bytearray(frame.data)
    struct.pack_into(">i", request, CORRELATION_AT, 77)
    stream = io.BytesIO(bytes(request))
    assert struct.unpack(">i", stream.read(4))[0] == len(request) - 4
    data = stream.read()
    header, used = entity_reader(RequestHeader)(data, 0)
    assert (header.correlation_id, header.client_id) == (77, "benchmark")
    api = wire.api(header.request_api_key)
    module = import_module(f"kio.schema.{api.folder}.v{header.request_api_version}.request")
    _, more = entity_reader(getattr(module, f"{api.name}Request"))(data, used)
    assert used + more == len(data)


def test_a_broker_that_refuses_quickly_is_not_fast() -> None:
    # An error code anywhere in the first answer ends the measurement.
    (frame,) = build_frames(["metadata"], "orders", "written")
    api = wire.api(3)
    for code in (0, 3):
        response = MetadataResponse(topics=[MetadataResponseTopic(name="orders", error_code=code)])
        answer = bytes(4) + wire.encode_response(api, 12, response, wire.response_header(api, 12, 1))
        if code:
            with pytest.raises(WrongAnswer, match="error 3"):
                frame.check(bytes(answer))
        else:
            frame.check(bytes(answer))
