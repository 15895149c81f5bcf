"""Of all attempts at a task the first one writes, and no other."""

import pytest

from ottla.client.client import Client
from ottla.client.exactly_once.claims import ClaimBook, take_claim
from ottla.testing import LocalBroker


@pytest.fixture
def client(ottla_broker: LocalBroker) -> Client:
    return Client({"bootstrap.servers": ottla_broker.bootstrap, "retry.backoff.ms": "5"})


def test_the_first_attempt_at_a_task_may_write_and_no_other(client: Client) -> None:
    """In each batch anew; a task that had nothing to write in one batch has its turn in the next."""
    book = ClaimBook(client, "query-output")
    first, second = book.open(2)
    assert [take_claim(client, first) for _ in range(3)] == [True, False, False]
    book.forget()  # the batch was begun again
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
    """Neither with the claim of its own batch, nor by taking the next batch's: that batch is run again."""
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


def test_trouble_on_the_way_makes_nobody_a_first_who_is_not(ottla_broker: LocalBroker, client: Client) -> None:
    """An answer that is lost is asked for again, and the number is another one then."""
    (claim,) = ClaimBook(client, "query-output").open(1)
    ottla_broker.drop("InitProducerId", answer_only=True)
    assert not take_claim(client, claim)
    assert not take_claim(client, claim)
    client.close()
