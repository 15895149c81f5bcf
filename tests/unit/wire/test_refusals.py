"""An error response for a whole request, of every API and version."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.wire import frames, schema
from ottla.wire.message import Message, fields_of, structure_of
from ottla.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
)
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.wire.refusals import refuse
from tests.unit.wire.arbitrary import arbitrary

CODE = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def refused(request: Any, version: int, code: ErrorCode = CODE, message: str = "not you") -> Any:
    """The refusal as a client of that version reads it."""
    api = frames.find_api_of(request)
    received = frames.decode_request(api, version, schema.encode(api.request, version, request))
    response = refuse(api, version, received, code, message)
    return schema.decode(api.response, version, frames.encode_response(api, version, response))


def filled(message_class: type[Message], version: int) -> Any:
    """A message whose lists are neither null nor empty."""
    message = arbitrary(message_class, version, Random(1))
    for field in fields_of(message_class):
        if field.is_in(version) and field.is_array:
            plain = {"string": "name", "uuid": b"u" * 16}.get(field.element, 7)
            value = filled(structure_of(message_class, field.element), version) if field.is_structure else plain
            setattr(message, field.name, [value])
    return message


def error_codes(message: Message) -> Iterator[int]:
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            yield value
        elif isinstance(value, Message):
            yield from error_codes(value)
        elif field.is_structure and value:
            for element in value:
                yield from error_codes(element)


@pytest.mark.parametrize("api", frames.apis(), ids=lambda api: api.name)
def test_every_api_and_version_carries_the_error(api: frames.Api) -> None:
    """The response has the code somewhere, and no other code except zero."""
    for version in api.versions:
        codes = set(error_codes(refused(filled(api.request, version), version)))
        assert CODE in codes, version
        assert codes <= {CODE, 0}, version


@pytest.mark.parametrize("api", frames.apis(), ids=lambda api: api.name)
def test_an_empty_request_can_be_refused(api: frames.Api) -> None:
    """An empty request is no reason to fail."""
    for version in api.versions:
        response = refuse(api, version, api.request(), CODE)
        schema.decode(api.response, version, frames.encode_response(api, version, response))


def test_items_come_back_with_their_names() -> None:
    """Every partition that was asked for is there, with the error and no offset."""
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=9) for index in (4, 5)]
    response = refused(ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=partitions)]), 9)
    (topic,) = response.topics
    assert topic.name == "t"
    assert [(each.partition_index, each.error_code, each.offset, each.timestamp) for each in topic.partitions] == [
        (4, CODE, -1, -1),
        (5, CODE, -1, -1),
    ]


def test_find_coordinator_in_both_shapes() -> None:
    """No coordinator is node -1, in the list of new versions and at the top of old ones."""
    (new,) = refused(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators
    old = refused(FindCoordinatorRequest(key="g"), 3)
    assert (new.key, new.node_id, new.port, new.error_code, new.error_message) == ("g", -1, -1, CODE, "not you")
    assert (old.node_id, old.port, old.error_code, old.error_message) == (-1, -1, CODE, "not you")


def test_offset_fetch_of_version_1() -> None:
    """This version has error codes only in partitions."""
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[3])]
    response = refused(OffsetFetchRequest(group_id="g", topics=topics), 1)
    (partition,) = response.topics[0].partitions
    assert (partition.partition_index, partition.error_code, partition.committed_offset) == (3, CODE, -1)


def test_metadata_of_all_topics() -> None:
    """No topics were named, so none are returned. Version 13 has the error at the top level."""
    assert refused(MetadataRequest(topics=None), 12).topics == []
    assert refused(MetadataRequest(topics=None), 13).error_code == CODE


def test_what_identifies_an_item_may_be_a_list() -> None:
    """The entity of a quota is returned whole."""
    entity = [AlterClientQuotasRequestEntityData(entity_type="user", entity_name="u")]
    request = AlterClientQuotasRequest(entries=[AlterClientQuotasRequestEntryData(entity=entity)])
    (entry,) = refused(request, 1).entries
    assert (entry.error_code, entry.entity[0].entity_type, entry.entity[0].entity_name) == (CODE, "user", "u")
