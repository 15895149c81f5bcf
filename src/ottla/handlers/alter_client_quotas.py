"""AlterClientQuotas: set and remove quotas of users, client ids and addresses (KIP-546).

Versions: 1 flexible. Entities are independent of each other; of one entity all changes are made or none. A change is in
force on this broker when the answer is sent, on the others within a moment.
"""

from functools import partial

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.quotas import Entity, QuotaAlteration, alter_quotas, make_entity
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.deadlines import Deadline
from ottla.security import rights
from ottla.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)

REQUIRES = rights.whole(rights.ALTER_CONFIGS_OF_CLUSTER)


async def handle(node: Node, call: Call[AlterClientQuotasRequest]) -> AlterClientQuotasResponse:
    request = call.body
    results: dict[Entity, KafkaError | None] = {}
    wanted: list[QuotaAlteration] = []
    for entry in request.entries:
        entity = make_entity((part.entity_type, part.entity_name) for part in entry.entity)
        refusal = find_repetition(entry)
        if entity in results:
            refusal = KafkaError(ErrorCode.INVALID_REQUEST, "the request names this entity more than once")
            wanted = [each for each in wanted if each.entity != entity]
        results[entity] = refusal
        if refusal is None:
            wanted.append(QuotaAlteration(entity, {op.key: None if op.remove else op.value for op in entry.ops}))
    decide = partial(alter_quotas, alterations=wanted)
    if request.validate_only:
        outcomes = decide(node.image).result
    else:
        outcomes = await node.metadata.change(decide, Deadline(node).left_s())
    results.update((each.entity, outcome) for each, outcome in zip(wanted, outcomes, strict=True))
    return AlterClientQuotasResponse(entries=[build_entry(entity, error) for entity, error in results.items()])


def find_repetition(entry: AlterClientQuotasRequestEntryData) -> KafkaError | None:
    if len({op.key for op in entry.ops}) == len(entry.ops):
        return None
    return KafkaError(ErrorCode.INVALID_REQUEST, "a quota is named more than once")


def build_entry(entity: Entity, error: KafkaError | None) -> AlterClientQuotasResponseEntryData:
    return AlterClientQuotasResponseEntryData(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message or None,
        entity=[AlterClientQuotasResponseEntityData(entity_type=kind, entity_name=name) for kind, name in entity],
    )
