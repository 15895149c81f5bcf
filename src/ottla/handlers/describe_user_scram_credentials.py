"""DescribeUserScramCredentials: which users have credentials of SCRAM, and with how many iterations (KIP-554)."""

from collections import Counter

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode
from ottla.security.rights import DESCRIBE_CLUSTER, whole
from ottla.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

REQUIRES = whole(DESCRIBE_CLUSTER)


def handle(node: Node, call: Call[DescribeUserScramCredentialsRequest]) -> DescribeUserScramCredentialsResponse:
    known: dict[str, list[CredentialInfo]] = {}
    scram = node.image.identities.scram
    for name, mechanism in sorted(scram):
        info = CredentialInfo(mechanism=mechanism, iterations=scram[name, mechanism].iterations)
        known.setdefault(name, []).append(info)
    asked = Counter(user.name for user in call.body.users or ()) or dict.fromkeys(known, 1)
    results = []
    for name, times in asked.items():
        result = DescribeUserScramCredentialsResult(user=name)
        if times > 1:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            result.error_message = f"Cannot describe SCRAM credentials for the same user twice in a request: {name}"
        elif name not in known:
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND
            result.error_message = f"Attempt to describe a user credential that does not exist: {name}"
        else:
            result.credential_infos = known[name]
        results.append(result)
    return DescribeUserScramCredentialsResponse(results=results)
