"""Changes quotas: set, remove."""

from starlette.responses import Response

from ottla.console.calls import BadInput, Call
from ottla.console.facts.quotas import KEYS, TYPES, change_quota, describe_entity, parse_amount, write_amount


def change(call: Call) -> Response:
    entity = {kind: name for kind in TYPES if (name := call.field(kind).strip())}
    if not entity:
        raise BadInput("name a user, a client id or an address")
    if "ip" in entity and len(entity) > 1:
        raise BadInput("an address has quotas alone, not together with a user or a client id")
    key, action = call.field("key"), call.field("action")
    if key not in KEYS:
        raise BadInput(f"quota: {key!r} is none of {', '.join(KEYS)}")
    if action not in ("set", "remove"):
        raise BadInput(f"there is no action {action!r}")
    value = _read_amount(call) if action == "set" else None
    with call.console.clients.borrow() as client:
        change_quota(client, entity, key, value)
    done = "has no limit of its own any more" if value is None else f"is limited to {write_amount(value)}"
    return call.redirect("/access", f"{key} of {describe_entity(entity)} {done}.")


def _read_amount(call: Call) -> float:
    try:
        return parse_amount(call.field("value"))
    except ValueError as error:
        raise BadInput(f"value: {error}") from None
