"""AlterUserScramCredentials: set and delete the credentials of users of SCRAM (KIP-554)."""

from functools import partial

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.credentials import DECOY_BYTES, Deletion, Upsertion, alter_users
from ottla.security.rights import ALTER_CLUSTER, whole
from ottla.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

REQUIRES = whole(ALTER_CLUSTER)


async def handle(node: Node, call: Call[AlterUserScramCredentialsRequest]) -> AlterUserScramCredentialsResponse:
    request = call.body
    upsertions = [
        Upsertion(each.name, each.mechanism, each.iterations, bytes(each.salt), bytes(each.salted_password))
        for each in request.upsertions
    ]
    deletions = [Deletion(each.name, each.mechanism) for each in request.deletions]
    decide = partial(
        alter_users, upsertions=upsertions, deletions=deletions, decoy_secret=node.random.randbytes(DECOY_BYTES)
    )
    problems = await node.metadata.change(decide, node.config.request_timeout_ms / 1000)
    results = []
    for name in dict.fromkeys([*(each.name for each in deletions), *(each.name for each in upsertions)]):
        result = AlterUserScramCredentialsResult(user=name)
        if name in problems:
            result.error_code, result.error_message = problems[name].code, problems[name].message
        results.append(result)
    return AlterUserScramCredentialsResponse(results=results)
