"""DescribeClientQuotas: the quotas of users, client ids and addresses that a filter finds (KIP-546).

Versions: 1 flexible. A filter names types of entities, each with a name, with the default, or with any name. Unless it
is strict, entities may have further types: a filter for the user alice finds her quotas for single client ids too.
"""

from collections.abc import Sequence

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.quotas import CLIENT_ID, IP, USER, Match, find_quotas
from ottla.errors import ErrorCode, KafkaError
from ottla.security import rights
from ottla.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

REQUIRES = rights.whole(rights.DESCRIBE_CONFIGS_OF_CLUSTER)

EXACT, DEFAULT, ANY = range(3)


def handle(node: Node, call: Call[DescribeClientQuotasRequest]) -> DescribeClientQuotasResponse:
    request = call.body
    found = find_quotas(node.image, read_filter(request.components), request.strict)
    return DescribeClientQuotasResponse(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[ValueData(key=key, value=value) for key, value in sorted(values.items())],
            )
            for entity, values in found
        ]
    )


def read_filter(components: Sequence[ComponentData]) -> list[Match]:
    """The filter of a request, with Kafka's checks in Kafka's order."""
    matches: dict[str, Match] = {}
    for component in components:
        kind = component.entity_type
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a part of the filter has no entity type")
        if kind in matches:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the filter names the entity type {kind} more than once")
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"there are no quotas for entities of type {kind!r}")
        matches[kind] = read_component(component)
    if IP in matches and len(matches) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a filter for addresses cannot name a user or a client id too")
    return list(matches.values())


def read_component(component: ComponentData) -> Match:
    kind, wanted = component.entity_type, component.match
    if component.match_type == EXACT:
        if wanted is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the filter for an exact {kind} has no name")
        return Match(kind, lambda name: name == wanted)
    if component.match_type not in (DEFAULT, ANY):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no match type {component.match_type}")
    if wanted is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the filter for {kind} has a name, which its match type forbids")
    if component.match_type == DEFAULT:
        return Match(kind, lambda name: name is None)
    return Match(kind, lambda name: True)
