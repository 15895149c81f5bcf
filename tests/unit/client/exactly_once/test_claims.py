"""Claims: of all attempts at a task only the first may write."""

import pytest

from ottla.client.client import Client
from ottla.client.exactly_once.claims import ClaimBook, take_claim
from ottla.testing import LocalBroker


@pytest.fixture
def client(ottla_broker: LocalBroker) -> Client:
    return Client({"bootstrap.servers": ottla_broker.bootstrap, "retry.backoff.ms": "5"})


def test_the_first_attempt_at_a_task_may_write_and_no_other(client: Client) -> None:
    """This holds in each batch anew. A task that had nothing to write in one batch may write in the next."""
    book = ClaimBook(client, "query-output")
    first, second = book.open(2)
    assert [take_claim(client, first) for _ in range(3)] == [True, False, False]
    book.forget()  # the batch was started again
    first, second = book.open(2)
    assert take_claim(client, first)
    book.settle([0])
    first, second = book.open(2)
    assert take_claim(client, first)
    assert take_claim(client, second)
    book.settle([0, 1])
    assert take_claim(client, book.open(3)[2])
    client.close()


def test_an_attempt_of_a_batch_that_is_over_cannot_write(client: Client) -> None:
    """The attempt can use neither the claim of its own batch nor one of the next batch, which would be run again
    then."""
    book = ClaimBook(client, "query-output")
    (old,) = book.open(1)
    assert take_claim(client, old)
    book.settle([0])
    (new,) = book.open(1)
    assert not take_claim(client, old)
    assert not take_claim(client, new), "nobody knows who drew the number"
    book.forget()
    assert take_claim(client, *book.open(1))
    client.close()


def test_network_errors_never_give_a_claim_twice(ottla_broker: LocalBroker, client: Client) -> None:
    """After a lost answer the claim is requested again, and gets another number."""
    (claim,) = ClaimBook(client, "query-output").open(1)
    ottla_broker.drop("InitProducerId", answer_only=True)
    assert not take_claim(client, claim)
    assert not take_claim(client, claim)
    client.close()
