"""GetTelemetrySubscriptions: which of its own metrics a client should push, and how often (KIP-714).

Only brokers that can show them ask for metrics: those with a metrics port. The others do not advertise the API.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.client_traits import list_traits
from ottla.security import rights
from ottla.telemetry.telemetry import ACCEPTED_CODECS
from ottla.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

REQUIRES = rights.NOTHING


def handle(node: Node, call: Call[GetTelemetrySubscriptionsRequest]) -> GetTelemetrySubscriptionsResponse:
    telemetry = node.telemetry
    if telemetry is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    asked = call.body.client_instance_id
    instance_id, subscription = telemetry.subscribe(asked, call.client_id or "", list_traits(call, asked))
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=subscription.id,
        accepted_compression_types=list(ACCEPTED_CODECS),
        push_interval_ms=subscription.interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=list(subscription.metrics),
    )
