"""One broker in a child process, shared by all tests of this folder that do not kill it. Each test has its own
topics."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import LocalBroker
from tests.clients import logins
from tests.clients.command_server import CommandServer, run_command_server
from tests.clients.groups import MEMBER_SERVER

HERE = Path(__file__).parent
LARGEST_MESSAGE = 12_000_000

_numbers = count()


@pytest.fixture(scope="session")
def broker() -> Iterator[LocalBroker]:
    # Records have old timestamps, so that a seed gives the same ones. Retention would delete them, so it does not run.
    settings: dict[str, Any] = {"message_max_bytes": LARGEST_MESSAGE, "log_initial_task_delay_ms": 86_400_000}
    with logins.run_broker(process=True, **settings) as running:
        yield running


@pytest.fixture(scope="session", autouse=True)
def member_server() -> Iterator[None]:
    """If a test has started a member of a group, its server ends with the tests."""
    yield
    MEMBER_SERVER.close()


@pytest.fixture(scope="session")
def commands() -> Iterator[CommandServer]:
    """Runs commands without a start of Python for each."""
    with run_command_server() as running:
        yield running


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With security, the tests run whose clients log in."""
    if logins.SECURITY:
        others = [each for each in items if HERE in each.path.parents and each.path.name in logins.EXCUSED]
        config.hook.pytest_deselected(items=others)
        items[:] = [each for each in items if each not in others]


@pytest.fixture
def topic() -> str:
    """An unused name. The topic is not created."""
    return f"topic-{next(_numbers)}"
