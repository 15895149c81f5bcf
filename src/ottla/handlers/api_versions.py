"""ApiVersions: the APIs and versions that this broker supports. It is the first request of every client.

Versions: 1 throttle time; 3 flexible, client software name (KIP-511), features (KIP-584); 4 features with minimum 0.
The header of the answer is never flexible, because the client does not know yet what the broker understands. Produce is
reported from version 0 although 0-2 are refused: librdkafka before 2.9 would otherwise switch compression off
(KAFKA-18659).
"""

import re

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.features import SUPPORTED
from ottla.errors import ErrorCode
from ottla.security import rights
from ottla.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla.wire.schema import encode

REQUIRES = rights.NOTHING

PRODUCE = 0
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(node: Node, call: Call[ApiVersionsRequest | None]) -> ApiVersionsResponse | bytes:
    request = call.body
    if request is None:  # the client asked in an unsupported version
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=list_versions(node))
    if call.version >= 3:
        software = request.client_software_name, request.client_software_version
        if software != call.client.software or "" in software:  # a client that asks again was checked before
            if not all(map(SOFTWARE.fullmatch, software)):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            call.client.software = software
    derived = node.image.derived
    known: bytes | None = derived.get((ApiVersionsResponse, call.version))
    if known is None:  # every connection begins with this request, and all get the same answer
        answer = bytes(encode(ApiVersionsResponse, call.version, build_response(node, call.version)))
        known = derived[ApiVersionsResponse, call.version] = answer
    return known


def build_response(node: Node, version: int) -> ApiVersionsResponse:
    image = node.image
    return ApiVersionsResponse(
        api_keys=list_versions(node),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=levels[0], max_version=levels[-1])
            for name, levels in sorted(SUPPORTED.items())
            if levels[0] > 0 or version >= 4  # clients of version 3 do not expect 0 (KAFKA-17011)
        ],
        finalized_features_epoch=image.version,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in sorted(image.features.items())
        ],
    )


def list_versions(node: Node) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=key, min_version=0 if key == PRODUCE else versions[0], max_version=versions[-1])
        for key, versions in node.apis.items()
    ]
