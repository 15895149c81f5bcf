"""Bytes that are no message: refused with one exception, within bounded memory, whatever they are.

OTTLA_FUZZ is the number of damaged copies per message and version.
"""

import os
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

import pytest

from ottla.wire import schema
from ottla.wire.frames import Api, apis
from ottla.wire.malformed import Malformed
from ottla.wire.message import Message, fields_of, structure_of
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.fetch import FetchRequest, FetchTopic
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.list_transactions import ListTransactionsRequest
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.primitives import unsigned_varint
from ottla.wire.readers import smallest_structure
from tests.unit.allocations import measure_peak
from tests.unit.wire.arbitrary import arbitrary, classes_and_versions, message_classes
from tests.unit.wire.mutations import mutants

CASES_PER_VERSION = int(os.environ.get("OTTLA_FUZZ", "25"))
ELEMENTS = 400
MEMORY_FACTOR = 60

every_class = pytest.mark.parametrize("message_class", list(message_classes()), ids=lambda each: each.__name__)


def read_or_refuse(message_class: type[Message], version: int, data: bytes) -> None:
    """Any result is fine, except another exception, or a message that cannot be written and read again."""
    try:
        message = schema.decode(message_class, version, data)
    except Malformed:
        return
    encoded = schema.encode(message_class, version, message)
    again = schema.decode(message_class, version, encoded)
    assert schema.encode(message_class, version, again) == encoded  # the messages could differ in a NaN


@every_class
def test_damaged_and_random_bytes(message_class: type[Message], seed: int) -> None:
    """Damaged copies of valid messages and plain noise are read or refused, nothing else."""
    for version in message_class.VERSIONS:
        source = Random(f"{seed} {message_class.__name__} {version}")
        valid = bytes(schema.encode(message_class, version, arbitrary(message_class, version, source)))
        for data in mutants(source, valid, CASES_PER_VERSION):
            read_or_refuse(message_class, version, data)
        for _ in range(CASES_PER_VERSION // 5):
            read_or_refuse(message_class, version, source.randbytes(source.randint(0, 60)))


@every_class
def test_truncated_bytes_are_refused(message_class: type[Message], seed: int) -> None:
    """No message may end early, wherever the bytes stop, and none may have further bytes."""
    for version in (message_class.VERSIONS[0], message_class.VERSIONS[-1]):
        valid = bytes(schema.encode(message_class, version, arbitrary(message_class, version, Random(seed))))
        for length in range(0, len(valid), 1 + len(valid) // 60):
            with pytest.raises(Malformed):
                schema.decode(message_class, version, valid[:length])
        with pytest.raises(Malformed, match="left over"):
            schema.decode(message_class, version, valid + b"\0")


def crowded(message_class: type[Message], version: int) -> Iterator[Any]:
    """Messages with very many elements of the least size, in each of the lists at any depth."""
    for field in fields_of(message_class):
        if not field.is_in(version) or not (field.is_structure or field.is_array):
            continue
        if field.is_array:
            element: Any = structure_of(message_class, field.element)() if field.is_structure else _least(field.element)
            yield _with(message_class, field.name, [element] * ELEMENTS)
        if field.is_structure:
            for inner in crowded(structure_of(message_class, field.element), version):
                yield _with(message_class, field.name, [inner] if field.is_array else inner)


def _least(element: str) -> Any:
    return {"string": "", "bytes": b"", "uuid": bytes(16), "bool": False}.get(element, 1000)


def _with(message_class: type[Message], name: str, value: Any) -> Message:
    message = message_class()
    setattr(message, name, value)
    return message


@pytest.mark.parametrize("api", apis(), ids=lambda each: each.name)
def test_memory_is_a_small_multiple_of_the_input(api: Api) -> None:
    """The smallest request that makes the most objects: the cost of a byte is bounded."""
    message_class = api.request
    for version in sorted({api.versions[0], api.versions[-1]}):
        read = schema.reader(message_class, version)
        for message in crowded(message_class, version):
            try:
                data = bytes(schema.encode(message_class, version, message))
            except Malformed:  # this version does not have the null that is the default
                continue
            peak = measure_peak(partial(read, data, 0))
            assert peak < MEMORY_FACTOR * len(data) + 10_000, (version, len(data), peak)


@pytest.mark.parametrize(
    ("message_class", "version", "data", "reason"),
    [
        (MetadataRequest, 1, b"\x7f\xff\xff\xff", "more elements"),
        (MetadataRequest, 1, b"\x00\xff\xff\xff", "more elements"),
        (MetadataRequest, 1, b"\x80\x00\x00\x00", "negative"),
        (MetadataRequest, 1, b"\xff\xff\xff\xfe", "negative"),
        (MetadataRequest, 9, b"\xff\xff\xff\xff\x07", "more elements"),
        (ListTransactionsRequest, 0, b"\x01\xff\xff\xff\xff\x07", "more elements"),  # numbers
        (DescribeTransactionsRequest, 0, b"\xff\xff\xff\xff\x07", "more elements"),  # strings
    ],
)
def test_a_huge_or_negative_count_allocates_nothing(
    message_class: type[Message], version: int, data: bytes, reason: str
) -> None:
    """A count is compared with the bytes that are left before there is a list."""
    read = schema.reader(message_class, version)

    def refuse() -> None:
        with pytest.raises(Malformed, match=reason):
            read(data + bytes(1000), 0)

    assert measure_peak(refuse) < 20_000


class ManyUuids(Message):
    """The messages of Kafka's controllers have lists of uuids; none of those that are spoken here has one."""

    __slots__ = ("log_dirs",)
    FIELDS = (("log_dirs", "[]uuid", 2, 2, None, None, None),)
    VERSIONS = range(2, 3)
    FLEXIBLE_FROM = 2

    def __init__(self) -> None:
        self.log_dirs: list[bytes] = []


def test_a_huge_count_of_uuids_allocates_nothing() -> None:
    """Uuids are read one by one, so only the check prevents the allocation."""
    request = ManyUuids()
    request.log_dirs = [b"u" * 16]
    data = schema.encode(ManyUuids, 2, request)
    assert schema.decode(ManyUuids, 2, data).log_dirs == request.log_dirs
    position = data.index(b"u" * 16) - 1
    with pytest.raises(Malformed, match="log_dirs: more elements"):
        schema.decode(ManyUuids, 2, data[:position] + b"\xff\xff\xff\xff\x07" + data[position + 1 :])


def test_a_string_is_at_most_32767_bytes() -> None:
    """Also in the compact encoding, which allows more: old versions could not return it."""
    for size, is_fine in ((32767, True), (32768, False)):
        data = bytearray(unsigned_varint(size + 1)) + b"x" * size + bytes(4) + b"\x01\x00\x00"
        if is_fine:
            assert len(schema.decode(HeartbeatRequest, 4, data).group_id) == size
        else:
            with pytest.raises(Malformed, match="too long"):
                schema.decode(HeartbeatRequest, 4, data)


@pytest.mark.parametrize("varint", [b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\x80" * 9 + b"\x00", b"\xff\x7f"])
def test_a_huge_or_overlong_varint_is_refused(varint: bytes) -> None:
    """A compact count of 34 billion, or one of ten bytes, or one past the end."""
    with pytest.raises(Malformed):
        schema.decode(MetadataRequest, 9, varint + bytes(20))


HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@pytest.mark.parametrize(
    "tags",
    [
        b"\x01\x05\x7f",  # longer than what is left
        b"\x02\x05\x00\x05\x00",  # twice the same
        b"\x02\x06\x00\x05\x00",  # in the wrong order
        b"\x02\x05\x00",  # one announced that is not there
        b"\xff\xff\xff\xff\x0f",  # very many of them
    ],
)
def test_wrong_tags_are_refused(tags: bytes) -> None:
    """Tagged fields that are out of order, doubled or too long."""
    data = schema.encode(HeartbeatRequest, 4, HEARTBEAT)
    with pytest.raises(Malformed):
        schema.decode(HeartbeatRequest, 4, data[:-1] + tags)


def test_unknown_tags_are_skipped() -> None:
    """A newer client's tagged fields do not disturb, beside known ones or alone."""
    data = schema.encode(HeartbeatRequest, 4, HEARTBEAT)
    assert schema.decode(HeartbeatRequest, 4, data[:-1] + b"\x02\x05\x02ab\x80\x01\x00") == HEARTBEAT
    fetch = FetchRequest(cluster_id="c")
    encoded = schema.encode(FetchRequest, 12, fetch)
    known = b"\x01\x00\x02\x02c"
    assert encoded.endswith(known)
    unknown_added = encoded[: -len(known)] + b"\x02\x00\x02\x02c" + b"\x63\x03abc"
    assert schema.decode(FetchRequest, 12, unknown_added) == fetch


@pytest.mark.parametrize("size", [b"\x01", b"\x03"])
def test_a_known_tag_has_the_size_it_says(size: bytes) -> None:
    """A tagged field's declared size is the size of what is in it."""
    known = b"\x01\x00\x02\x02c"
    encoded = schema.encode(FetchRequest, 12, FetchRequest(cluster_id="c"))
    assert encoded.endswith(known)
    with pytest.raises(Malformed, match="shorter or longer"):
        schema.decode(FetchRequest, 12, encoded[: -len(known)] + b"\x01\x00" + size + b"\x02c\x00")


@pytest.mark.parametrize(
    "tags", [b"\x02\x00\x02\x02c\x00\x02\x02c", b"\x02\x05\x00\x00\x02\x02c", b"\x01\x00\x7f\x02c", b"\x01\x07\x7f"]
)
def test_wrong_tags_beside_known_ones_are_refused(tags: bytes) -> None:
    """Doubled, out of order or too long, in a structure that knows some tags."""
    encoded = schema.encode(FetchRequest, 12, FetchRequest())
    with pytest.raises(Malformed, match="out of order or longer"):
        schema.decode(FetchRequest, 12, encoded[:-1] + tags)


def test_null_where_it_is_not_allowed() -> None:
    """A null string and a null list, in both encodings."""
    for data in (b"\xff\xff", b"\xff\xfe"):
        with pytest.raises(Malformed):
            schema.decode(HeartbeatRequest, 0, data + bytes(10))
    with pytest.raises(Malformed):
        schema.decode(HeartbeatRequest, 4, bytes(10))
    with pytest.raises(Malformed):
        schema.decode(MetadataRequest, 0, b"\xff\xff\xff\xff")


def test_text_must_be_utf8() -> None:
    """Neither stray bytes nor surrogates are text."""
    for text in (b"\xff\xfe", b"\xed\xa0\x80"):
        with pytest.raises(Malformed):
            schema.decode(HeartbeatRequest, 0, len(text).to_bytes(2, "big") + text + bytes(6))


def test_a_bool_is_true_unless_zero() -> None:
    """Clients write 1, and some write 255."""
    data = schema.encode(MetadataRequest, 4, MetadataRequest(allow_auto_topic_creation=False))
    assert not schema.decode(MetadataRequest, 4, data).allow_auto_topic_creation
    assert schema.decode(MetadataRequest, 4, data[:-1] + b"\xff").allow_auto_topic_creation is True


def test_every_structure_needs_at_least_one_byte() -> None:
    """A list of structures without any bytes could not be limited by the bytes that are left."""

    def check(message_class: type[Message], version: int, compact: bool) -> None:
        for field in fields_of(message_class):
            if field.is_in(version) and field.is_structure:
                structure = structure_of(message_class, field.element)
                assert smallest_structure(structure, version, compact) > 0, (message_class, version, field)
                check(structure, version, compact)

    for message_class, version in classes_and_versions():
        check(message_class, version, version >= message_class.FLEXIBLE_FROM)


def test_the_message_says_where() -> None:
    """The path of the field is in the text, and the class and version."""
    request = FetchRequest(topics=[FetchTopic(topic="t")])
    data = bytes(schema.encode(FetchRequest, 4, request)).replace(b"\x00\x01t", b"\x00\x7ft")
    with pytest.raises(Malformed, match=r"FetchRequest v4: topics\.topic: "):
        schema.decode(FetchRequest, 4, data)
    with pytest.raises(Malformed, match="HeartbeatResponse v1: ends too early"):
        schema.decode(HeartbeatResponse, 1, b"\0")
