"""PushTelemetry: a client sends its own metrics, in OpenTelemetry's format (KIP-714). The metrics page shows them."""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.client_traits import list_traits
from ottla.security import rights
from ottla.telemetry.telemetry import Push
from ottla.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

REQUIRES = rights.NOTHING


def handle(node: Node, call: Call[PushTelemetryRequest]) -> PushTelemetryResponse:
    telemetry, body = node.telemetry, call.body
    if telemetry is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    push = Push(
        body.client_instance_id, body.subscription_id, body.terminating, body.compression_type, bytes(body.metrics)
    )
    telemetry.push(push, call.client_id or "", list_traits(call, push.instance_id))
    return PushTelemetryResponse()
