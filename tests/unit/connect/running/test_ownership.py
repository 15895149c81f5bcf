"""A run that is paused or stopped calls its tasks back, and fences none of them."""

from contextlib import ExitStack, closing

from ottla.client.client import Client
from ottla.client.transaction_states import find_transaction_states
from ottla.connect.connector import ConnectorContext
from ottla.connect.running.ownership import Ownership, is_called_back
from ottla.testing import LocalBroker

TIMEOUT_MS = 60_000


def test_tasks_are_called_back_by_their_run_and_by_the_next_one(ottla_broker: LocalBroker) -> None:
    with ExitStack() as stack:
        driver, other, task = (stack.enter_context(closing(Client(ottla_broker.client_settings))) for _ in range(3))
        context = ConnectorContext("midway", "owners", 2, {})
        ownership = Ownership(driver, context, TIMEOUT_MS)
        ownership.claim()
        producer = ownership.start_task(0)
        ordered = ownership.run
        assert not is_called_back(task, ordered)

        ownership.call_back(other)
        assert is_called_back(task, ordered)
        assert not is_called_back(task, ownership.run)
        assert find_transaction_states(task, ["owners-midway-0"])["owners-midway-0"].epoch == producer.epoch
        ownership.start_task(1)  # raises if the run were not the owner any more

        last = ownership.run
        Ownership(other, context, TIMEOUT_MS).claim()
        assert is_called_back(task, last)
