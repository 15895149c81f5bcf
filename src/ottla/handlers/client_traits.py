"""What both telemetry APIs share: by what a subscription to client metrics chooses clients."""

import base64
from collections.abc import Mapping
from typing import Any

from ottla.broker.call import Call


def list_traits(call: Call[Any], instance_id: bytes) -> Mapping[str, str]:
    """The traits of the client that sent a request, by the names in a subscription's `match`."""
    software_name, software_version = call.client.software
    return {
        "client_instance_id": base64.urlsafe_b64encode(instance_id).rstrip(b"=").decode(),
        "client_id": call.client_id or "",
        "client_software_name": software_name,
        "client_software_version": software_version,
        "client_source_address": call.client.address,
        "client_source_port": str(call.client.port),
    }
