"""Of all attempts at a task the first one writes, and no other."""

import pytest

from ottla.client.client import Cluster
from ottla.client.exactly_once.claims import ClaimBook, is_first
from ottla.testing import LocalBroker


@pytest.fixture
def cluster(ottla_broker: LocalBroker) -> Cluster:
    return Cluster({"bootstrap.servers": ottla_broker.bootstrap, "retry.backoff.ms": "5"})


def test_the_first_attempt_at_a_task_may_write_and_no_other(cluster: Cluster) -> None:
    """In each batch anew; a task that had nothing to write in one batch has its turn in the next."""
    book = ClaimBook(cluster, "query-output")
    first, second = book.open(2)
    assert [is_first(cluster, first) for _ in range(3)] == [True, False, False]
    book.forget()  # the batch was begun again
    first, second = book.open(2)
    assert is_first(cluster, first)
    book.settle([0])
    first, second = book.open(2)
    assert is_first(cluster, first)
    assert is_first(cluster, second)
    book.settle([0, 1])
    assert is_first(cluster, book.open(3)[2])
    cluster.close()


def test_an_attempt_of_a_batch_that_is_over_cannot_write(cluster: Cluster) -> None:
    """Neither with the claim of its own batch, nor by taking the next batch's: that batch is run again."""
    book = ClaimBook(cluster, "query-output")
    (old,) = book.open(1)
    assert is_first(cluster, old)
    book.settle([0])
    (new,) = book.open(1)
    assert not is_first(cluster, old)
    assert not is_first(cluster, new), "nobody knows who drew the number"
    book.forget()
    assert is_first(cluster, *book.open(1))
    cluster.close()


def test_trouble_on_the_way_makes_nobody_a_first_who_is_not(ottla_broker: LocalBroker, cluster: Cluster) -> None:
    """An answer that is lost is asked for again, and the number is another one then."""
    (claim,) = ClaimBook(cluster, "query-output").open(1)
    ottla_broker.drop("InitProducerId", answer_only=True)
    assert not is_first(cluster, claim)
    assert not is_first(cluster, claim)
    cluster.close()
