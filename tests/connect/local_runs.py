"""Connectors that run in the test's own thread, without Spark and without a worker: they can die at every step."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pytest

from ottla.connect.connector import Connector, ConnectorContext, Sink, Source
from ottla.connect.connectors.mirror.mirror_source import MirrorSource
from ottla.connect.running.loop import Loop, LoopContext
from ottla.connect.running.making import RunConfig
from ottla.connect.running.ownership import Ownership
from ottla.connect.running.sink_loop import SinkLoop
from ottla.connect.running.sink_tasks import run_sink_order
from ottla.connect.running.source_loop import SourceLoop
from ottla.connect.running.source_tasks import run_source_order
from ottla.connect.running.work import Order, Report, report_fields, to_order
from ottla.connect.worker.offsets import SourceOffsets
from ottla.connect.worker.runs import ConnectorSpec
from ottla.connect.worker.topics import TopicForm, create_store_topic
from ottla.spark.jobs import RddJobs
from ottla.testing import LocalBroker
from tests.connect.runs import GROUP, OFFSETS, WORKER


class Died(BaseException):
    """Stands for a kill: nothing of ours catches it."""


class LocalJobs:
    """Runs the tasks in the test's own thread."""

    def __init__(self, run_order: Callable[[Order], Report]) -> None:
        self._run_order = run_order

    def run(self, orders: Sequence[Any]) -> list[Any]:
        return [report_fields(self._run_order(to_order(each))) for each in orders]


def run_locally(
    broker: LocalBroker,
    kind: type[Connector],
    given: Mapping[str, str],
    is_enough: Callable[[], bool] = lambda: True,
) -> str | None:
    """Rounds until there is nothing to do and it is enough, or a task has failed: then why.

    Each call is a run of its own, as if the worker was started again.
    """
    name = given["name"]
    given = {"connector.class": kind.__name__, **given}
    context = ConnectorContext(name, GROUP, 1, broker.client_settings)
    config = RunConfig.read(ConnectorSpec(name, given, WORKER, context), given, kind)
    connector = config.make_connector()
    client = config.make_client("admin")
    clients = [client]

    def make_context(run_order: Callable[[Order], Report]) -> LoopContext:
        jobs = cast(RddJobs, LocalJobs(run_order))
        ownership = Ownership(client, context, config.transaction_timeout_ms)
        return LoopContext(name, 1, lambda: jobs, ownership, lambda text: text, lambda: None)

    try:
        loop: Loop
        if isinstance(connector, Source):
            create_store_topic(client, TopicForm(OFFSETS, 5, 1, {}))
            source_plan = config.make_source_plan(connector, lambda _: None)
            clients.append(source_plan.client)
            stored = SourceOffsets(client, OFFSETS)
            loop = SourceLoop(make_context(lambda order: run_source_order(source_plan, order)), connector, stored)
        else:
            assert isinstance(connector, Sink)
            sink_plan = config.make_sink_plan(connector, lambda _: None)
            clients += [sink_plan.consumer, sink_plan.producer]
            context_of_sink = make_context(lambda order: run_sink_order(sink_plan, order))
            loop = SinkLoop(context_of_sink, connector, client, config.read_subscription())
        connector.start()
        while loop.run_round() or not is_enough():
            failures = [slot.failure for slot in loop.slots if slot.failure is not None]
            if failures:
                return failures[0].message
        return None
    finally:
        connector.stop()
        if isinstance(connector, MirrorSource):
            clients.append(connector._reader)  # of the task, which shares it with other tasks of its process
        for each in clients:
            each.close()


def run_until_death(
    broker: LocalBroker,
    kind: type[Connector],
    given: Mapping[str, str],
    is_enough: Callable[[], bool] = lambda: True,
) -> None:
    """Like `run_locally`, for a connector that must not fail, but may die."""
    with contextlib.suppress(Died):
        assert run_locally(broker, kind, given, is_enough) is None


class Steps:
    """Counts the steps of a protocol, and dies at one of them. Step 2n is before the n-th call, 2n + 1 after it."""

    def __init__(self, deadly: int | None) -> None:
        self.count = 0
        self._deadly = deadly

    def pass_one(self) -> None:
        number, self.count = self.count, self.count + 1
        if number == self._deadly:
            raise Died


@contextmanager
def count_steps(functions: Sequence[tuple[Any, str]], deadly: int | None = None) -> Iterator[Steps]:
    """Calls of these functions, given as owner and name, are the steps. None: nothing dies."""
    steps = Steps(deadly)
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in functions:
            patch.setattr(owner, name, _make_step(getattr(owner, name), steps))
        yield steps


def _make_step(function: Callable[..., Any], steps: Steps) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        steps.pass_one()
        found = function(*arguments, **options)
        steps.pass_one()
        return found

    return call
