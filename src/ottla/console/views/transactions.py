"""Transactional ids and what they are doing; abort an open transaction; find and end those that hang."""

from starlette.responses import Response

from ottla.console import copying
from ottla.console.calls import BadInput, Call, explain, parse_number
from ottla.console.facts.transactions import (
    OpenTransaction,
    abort_transactions,
    describe_transactions,
    end_hanging,
    list_hanging,
    list_transactions,
)
from ottla.console.views.listing import make_listing
from ottla.console.views.record_rows import INT64_MAX, parse_time
from ottla.errors import KafkaError

LONGEST = "15m"
"""The default of transaction.max.timeout.ms: the coordinator ends every older transaction that it knows."""


def show(call: Call) -> Response:
    snapshot = call.console.metadata.get()
    with call.console.clients.borrow() as client:
        listing = make_listing(
            call,
            list_transactions(client, snapshot),
            lambda each: each.transactional_id,
            {"name": lambda each: each.transactional_id, "state": lambda each: each.state},
        )
        states = describe_transactions(client, [each.transactional_id for each in listing.rows])
    hanging, refusal = _find_hanging(call) if call.text("hanging") == "1" else (None, "")
    return call.page(
        "transactions.html",
        listing=listing,
        states=states,
        hanging=hanging,
        refusal=refusal,
        older=call.text("older", LONGEST),
        topic=call.text("topic"),
        now_ms=call.console.now_ms(),
        copies=copying.copy_transactions(call.console.options),
    )


def _find_hanging(call: Call) -> tuple[list[OpenTransaction], str]:
    """Those in one topic or in all, or why they cannot be found."""
    before_ms = parse_time(call.text("older", LONGEST), call.console.now_ms())
    topic = call.text("topic").strip()
    try:
        with call.console.clients.borrow() as client:
            return list_hanging(client, call.console.metadata.get(), topic or None, before_ms), ""
    except KafkaError as error:
        return [], explain(error)


def change(call: Call) -> Response:
    action = call.field("action")
    if action == "abort":
        return _abort(call)
    if action == "end":
        return _end_hanging(call)
    raise BadInput(f"there is no action {action!r}")


def _abort(call: Call) -> Response:
    name = call.field("name")
    if not name:
        raise BadInput("name the transactional id")
    with call.console.clients.borrow() as client:
        abort_transactions(client, [name])
    return call.redirect("/transactions", f"The transaction of {name} is aborted, and its producer is fenced.")


def _end_hanging(call: Call) -> Response:
    topic = call.field("topic")
    partition = parse_number(call.field("partition"), "partition", 0, (1 << 31) - 1)
    start = parse_number(call.field("start"), "start", 0, INT64_MAX)
    with call.console.clients.borrow() as client:
        found = end_hanging(client, call.console.metadata.get(), topic, partition, start)
    if not found:
        raise BadInput(f"{topic}-{partition}: no open transaction began at offset {start}")
    return call.redirect("/transactions", f"The transaction from offset {start} of {topic}-{partition} on is aborted.")
