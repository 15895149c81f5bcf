"""SaslAuthenticate: a token of the SASL mechanism that SaslHandshake has chosen.

Versions: 1 session lifetime, after which the client has to authenticate again (KIP-368); 2 flexible.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode
from ottla.security.failure import AuthenticationFailed
from ottla.security.rights import NOTHING
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

REQUIRES = NOTHING


async def handle(node: Node, call: Call[SaslAuthenticateRequest]) -> SaslAuthenticateResponse:
    client, session = call.client, call.client.sasl
    if session is None or not session.expects_token():
        message = "SaslAuthenticate request received after successful authentication"
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message)
    try:
        token = await session.step(bytes(call.body.auth_bytes))
    except AuthenticationFailed as error:
        return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=error.message)
    if session.identity is None or session.expects_token():
        return SaslAuthenticateResponse(auth_bytes=token)
    client.principal = session.identity.principal
    client.allowed.clear()
    return SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=session.lifetime_ms() or 0)
