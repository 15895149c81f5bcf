"""SaslHandshake: the client names the mechanism by which it authenticates.

Versions: 0, after which tokens are bare frames; 1, after which they are in SaslAuthenticate requests.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode
from ottla.security.failure import AuthenticationFailed
from ottla.security.rights import NOTHING
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

REQUIRES = NOTHING


def handle(node: Node, call: Call[SaslHandshakeRequest]) -> SaslHandshakeResponse:
    session = call.client.sasl
    if session is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    mechanisms = list(session.sasl.mechanisms)
    try:
        is_enabled = session.begin(call.body.mechanism, raw=call.version == 0)
    except AuthenticationFailed:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=mechanisms)
    code = ErrorCode.NONE if is_enabled else ErrorCode.UNSUPPORTED_SASL_MECHANISM
    return SaslHandshakeResponse(error_code=code, mechanisms=mechanisms)
