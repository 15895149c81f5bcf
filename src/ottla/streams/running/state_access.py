"""A task's stores: readers of state servers, one connection per server and Python worker."""

from functools import cache

from ottla.streams.planning.plan import SubtopologyPlan
from ottla.streams.running.work import Order
from ottla.streams.state.client import StateClient
from ottla.streams.state.store import Store


def open_stores(plan: SubtopologyPlan, order: Order, token: str) -> dict[str, Store]:
    """The stores as they were before the batch. Each waits on first use until its server has come that far."""
    found = {}
    for store in plan.stores:
        version = order.state[store.spec.name]
        reader = _client(version.address, token).reader(store.spec.name, order.partition, version.upto)
        found[store.spec.name] = Store(reader)
    return found


@cache
def _client(address: str, token: str) -> StateClient:
    return StateClient(address, token)
