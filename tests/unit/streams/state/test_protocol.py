"""Requests and answers of state servers as bytes."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.streams.state.protocol import LENGTH, ProtocolError, decode_frame, encode_frame, pack_many, unpack_many


@given(st.lists(st.none() | st.binary()))
def test_byte_strings_come_back(values: list[bytes | None]) -> None:
    assert unpack_many(pack_many(values)) == values


@given(st.integers(0, 255), st.dictionaries(st.text(), st.integers(-100, 100)), st.binary())
def test_frames_come_back(kind: int, fields: dict[str, int], payload: bytes) -> None:
    frame = encode_frame(kind, fields, payload)
    assert LENGTH.unpack_from(frame)[0] == len(frame) - LENGTH.size
    found = decode_frame(frame[LENGTH.size :])
    assert (found.kind, found.fields, bytes(found.payload)) == (kind, fields, payload)


@given(st.binary())
def test_bytes_of_others_are_refused(data: bytes) -> None:
    # Whatever comes, the result is a value or a ProtocolError, which becomes an answer.
    for read in (decode_frame, unpack_many):
        with suppress(ProtocolError):
            read(data)


def test_a_list_that_claims_too_much_is_refused() -> None:
    for data in (b"", b"\0\0\0\x01", b"\x7f\xff\xff\xff", b"\0\0\0\x01\0\0\0\x05abc", b"\0\0\0\x01\xff\xff\xff\x00"):
        with pytest.raises(ProtocolError):
            unpack_many(data)
