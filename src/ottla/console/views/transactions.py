"""Transactional ids and what they are doing; abort an open transaction."""

from starlette.responses import Response

from ottla.console import copying
from ottla.console.calls import BadInput, Call
from ottla.console.facts.transactions import abort_transactions, describe_transactions, list_transactions
from ottla.console.views.listing import make_listing


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
    return call.page(
        "transactions.html",
        listing=listing,
        states=states,
        now_ms=call.console.now_ms(),
        copies=copying.copy_transactions(call.console.options),
    )


def abort(call: Call) -> Response:
    name = call.field("name")
    if call.field("action") != "abort" or not name:
        raise BadInput("name the transactional id")
    with call.console.clients.borrow() as client:
        abort_transactions(client, [name])
    return call.redirect("/transactions", f"The transaction of {name} is aborted, and its producer is fenced.")
