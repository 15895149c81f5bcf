"""Every client comes in with every mechanism that it has, and says why it does not: a table of cases for each."""

import re
from collections.abc import Iterator

import pytest

from tests.clients import franz
from tests.clients.login_cases import IN, Case, World, run_world
from tests.clients.login_clients import CLIENTS, LoginClient
from tests.kafka_peer import missing
from tests.needs import skip_without

LONG = ("Java",)
"""Clients that need a process which takes long to start."""
NAMES = [pytest.param(name, marks=[pytest.mark.long] if name in LONG else []) for name in CLIENTS]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with run_world(tmp_path_factory.mktemp("logins")) as world:
        yield world


@pytest.mark.parametrize("name", NAMES)
def test_every_way_in_and_none_other(world: World, name: str) -> None:
    if name == "franz-go" and (reason := franz.explain_missing()):
        skip_without("the Go client", reason)
    if name == "Java" and (reason := missing()):
        skip_without("Apache Kafka", reason)
    client = CLIENTS[name]
    cases = [case for case in world.cases if client.can(case)]
    found = dict(zip((case.name for case in cases), client.run(world, cases), strict=True))
    wrong = {case.name: found[case.name] for case in cases if not is_expected(client, case, found[case.name])}
    assert not wrong
    assert len(found) == len(cases)


def is_expected(client: LoginClient, case: Case, outcome: str) -> bool:
    if not case.refusal:
        return outcome == IN
    return outcome != IN and re.search(client.complaints[case.refusal], outcome) is not None
