"""Operations of the coordinators: the list that metrics show is the list of methods."""

import pytest

from ottla.coordinators.groups.coordinator import GroupCoordinator
from ottla.coordinators.transactions.coordinator import TransactionCoordinator


@pytest.mark.parametrize("coordinator", [GroupCoordinator, TransactionCoordinator])
def test_every_method_of_a_coordinator_is_an_operation(
    coordinator: type[GroupCoordinator] | type[TransactionCoordinator],
) -> None:
    # An operation without a name in the list would fail when it is called, and one without a method would stay at 0.
    methods = [name for name, value in vars(coordinator).items() if callable(value) and not name.startswith("_")]
    assert sorted(coordinator.OPERATIONS) == sorted(methods)
