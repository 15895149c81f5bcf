"""A connector that runs: its thread, and what the worker can ask of it (`worker/runs.py`).

The thread makes the connector, shuts out earlier runs, and goes from round to round. A failure that a repetition may
mend, such as a broker that is away, is tried again with longer and longer pauses; the connector stays RUNNING and the
cause is its trace. Any other failure of the connector itself is FAILED. Failures of tasks are the tasks' own.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from logging import getLogger
from typing import TYPE_CHECKING, Final

from ottla.client.client import Client
from ottla.client.connection import Unreachable
from ottla.connect.connector import Connector, Sink, Source
from ottla.connect.running.failures import explain_failure
from ottla.connect.running.loop import Loop, LoopContext
from ottla.connect.running.making import MakeTransforms, RunConfig
from ottla.connect.running.orders import run_task
from ottla.connect.running.ownership import Ownership, TakenOver
from ottla.connect.running.sink_loop import SinkLoop
from ottla.connect.running.sink_tasks import run_sink_order
from ottla.connect.running.slots import RETRY_PAUSES_S
from ottla.connect.running.source_loop import SourceLoop
from ottla.connect.running.source_tasks import run_source_order
from ottla.connect.running.topics import TopicGroup, create_topic
from ottla.connect.running.work import FAILED, Order, Report
from ottla.connect.settings.providers import Providers
from ottla.connect.settings.redaction import Redactor
from ottla.connect.worker.offsets import SourceOffsets
from ottla.connect.worker.runs import ConnectorSpec, RunStatus, State, StatusListener, TaskState
from ottla.connect.worker.topics import TopicForm, create_store_topic
from ottla.errors import KafkaError
from ottla.spark.jobs import RddJobs

if TYPE_CHECKING:
    from pyspark import SparkContext

log = getLogger(__name__)

IDLE_PAUSES_S: Final = (0.02, 0.05, 0.1, 0.2, 0.5)
"""How long a connector without work waits before it asks again, the first times and from then on."""
OFFSETS_PARTITIONS: Final = 25
"""offset.storage.partitions of Kafka Connect."""

RunOrder = Callable[[Order], Report]
"""Runs in a task."""
FindClass = Callable[[Mapping[str, str]], type[Connector]]
"""The class that connector.class names."""


@dataclass(frozen=True)
class RunEnvironment:
    """What all runs of a worker share."""

    spark: "Callable[[], SparkContext]"
    find_class: FindClass
    make_transforms: MakeTransforms
    providers: Providers
    redactor: Redactor


class Run:
    """Fulfils `worker.runs.ConnectorRun`."""

    def __init__(self, environment: RunEnvironment, spec: ConnectorSpec, listener: StatusListener) -> None:
        self._environment = environment
        self._spec = spec
        self._listener = listener
        self._loop: Loop | None = None
        self._make_client: Callable[[], Client] | None = None
        self._clients: list[Client] = []
        self._state = TaskState(State.UNASSIGNED)
        self._told = RunStatus(self._state)
        self._is_stopping = threading.Event()
        self._is_paused = False
        self._wake = threading.Event()
        """Set when something was asked for, so that the thread does not finish its pause first."""
        self._thread = threading.Thread(target=self._run, name=f"connector {spec.name}", daemon=True)

    # For the worker

    def start(self, *, paused: bool = False) -> None:
        self._is_paused = paused
        self._thread.start()

    def pause(self) -> None:
        self._is_paused = True
        self._wake.set()
        self._call_back()

    def resume(self) -> None:
        self._is_paused = False
        self._wake.set()

    def stop(self) -> None:
        self._is_stopping.set()
        self._wake.set()
        self._call_back()

    def _call_back(self) -> None:
        """Let a task that is inside a large transaction of its source end at its next offset."""
        loop, make_client = self._loop, self._make_client
        if loop is None or make_client is None or not loop.is_busy:
            return

        def call_back() -> None:
            client = make_client()
            try:
                loop.context.ownership.call_back(client)
            except (KafkaError, Unreachable) as error:  # the task ends later, by itself
                log.info("connector %s: its tasks could not be called back: %s", self._spec.name, error)
            finally:
                client.close()

        threading.Thread(target=call_back, name=f"end of {self._spec.name}", daemon=True).start()

    def join(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def counters(self) -> Mapping[str, float]:
        return {} if self._loop is None else dict(self._loop.counts)

    @property
    def task_metrics(self) -> Sequence[Mapping[str, float]]:
        return [] if self._loop is None else self._loop.list_metrics()

    # The thread

    def _run(self) -> None:
        connector: Connector | None = None
        try:
            resolved, secrets = self._environment.providers.resolve_or_fail(self._spec.config)
            self._environment.redactor.add(secrets)
            config = RunConfig.read(self._spec, resolved, self._environment.find_class(resolved))
            if unknown := config.list_unknown():
                log.warning("connector %s: these settings have no effect: %s", self._spec.name, ", ".join(unknown))
            connector = config.make_connector()
            self._set_state(State.PAUSED if self._is_paused else State.RUNNING)
            self._work(config, connector)
        except TakenOver as error:
            log.warning("connector %s: %s", self._spec.name, error)
            self._listener(replace(self._told, is_fenced=True))
        except Exception as error:
            self._fail(error)
        finally:
            if connector is not None:
                self._stop_connector(connector)
            for client in self._clients:
                client.close()

    def _stop_connector(self, connector: Connector) -> None:
        try:
            connector.stop()
        except Exception as error:
            message = self._redact(explain_failure(error).message)
            log.warning("connector %s: it does not stop well: %s", self._spec.name, message)

    def _work(self, config: RunConfig, connector: Connector) -> None:
        """Rounds until the run is stopped, or the source has reached its end."""
        loop: Loop | None = None
        attempts = idle = 0
        has_begun = False
        while not self._is_stopping.is_set():
            if self._is_paused:
                self._set_state(State.PAUSED)
                self._pause(None)
                continue
            try:
                if loop is None:
                    connector.start()
                    loop = self._loop = self._make_loop(config, connector)
                has_worked = loop.run_round()
            except Exception as error:
                failure = explain_failure(error)
                if failure.kind == FAILED:
                    raise
                self._set_state(State.RUNNING, failure.trace)
                log.warning("connector %s: %s", self._spec.name, self._redact(failure.message))
                self._pause(RETRY_PAUSES_S[min(attempts, len(RETRY_PAUSES_S) - 1)])
                attempts += 1
                continue
            attempts = 0
            if has_worked and not has_begun and all(slot.failure is None for slot in loop.slots):
                has_begun = True
                log.info("connector %s: its first batch is done", self._spec.name)
            self._set_state(State.RUNNING)
            if not has_worked:
                if loop.is_done():
                    self._pause(None)
                self._pause(IDLE_PAUSES_S[min(idle, len(IDLE_PAUSES_S) - 1)])
            idle = 0 if has_worked else idle + 1

    def _make_jobs(self, run_order: RunOrder) -> RddJobs:
        """Called for the first batch, which takes seconds on a new worker: the status and the log say why."""
        self._wait_for("Spark to start, as a new worker has to once")
        spark = self._environment.spark()
        self._wait_for("its first batch: Spark starts a Python process")
        return RddJobs(spark, partial(run_task, run_order))

    def _wait_for(self, what: str) -> None:
        self._set_state(State.RUNNING, f"waiting for {what}")
        log.info("connector %s: waiting for %s", self._spec.name, what)

    def _make_loop(self, config: RunConfig, connector: Connector) -> Loop:
        from pyspark.cloudpickle import dumps, loads

        self._make_client = partial(config.make_client, "producer", for_driver=True)
        driver = self._make_client()
        self._clients.append(driver)
        ownership = Ownership(driver, self._spec.context, config.transaction_timeout_ms)
        transforms = self._environment.make_transforms
        # Tasks get the connector as it is after its start, whatever becomes of it later.
        copy: Connector = loads(dumps(connector))  # type: ignore[no-untyped-call]

        def make_context(run_order: RunOrder) -> LoopContext:
            return LoopContext(
                self._spec.name,
                self._spec.context.tasks_max,
                lambda: self._make_jobs(run_order),
                ownership,
                self._redact,
                lambda: self._set_state(State.RUNNING),
            )

        if isinstance(connector, Source):
            assert isinstance(copy, Source)
            source_plan = config.make_source_plan(copy, transforms)
            if config.values.get("offsets.storage.topic"):
                create_store_topic(driver, TopicForm(config.offsets_topic, OFFSETS_PARTITIONS, -1, {}))
            stored = SourceOffsets(driver, config.offsets_topic)
            return SourceLoop(make_context(partial(run_source_order, source_plan)), connector, stored)
        assert isinstance(connector, Sink)
        assert isinstance(copy, Sink)
        sink_plan = config.make_sink_plan(copy, transforms)
        policy = sink_plan.policy
        if policy.dead_letter_topic:
            create_topic(
                driver,
                policy.dead_letter_topic,
                TopicGroup(partitions=1, replication_factor=policy.dead_letter_replication),
                "errors.deadletterqueue.topic.replication.factor",
            )
        consumer = config.make_client("consumer", for_driver=True)
        self._clients.append(consumer)
        context = make_context(partial(run_sink_order, sink_plan))
        return SinkLoop(context, connector, consumer, config.read_subscription())

    def _pause(self, seconds: float | None) -> None:
        """Until something is asked for, or so many seconds have passed."""
        self._wake.wait(seconds)
        self._wake.clear()

    # Status

    def _redact(self, text: str) -> str:
        return self._environment.redactor.redact(text)

    def _fail(self, error: Exception) -> None:
        failure = explain_failure(error)
        self._set_state(State.FAILED, failure.trace)
        log.error("connector %s: %s", self._spec.name, self._redact(failure.message))

    def _set_state(self, state: State, trace: str | None = None) -> None:
        """Called after every round. The listener hears of it if anything has changed, also in a task."""
        self._state = TaskState(state, None if trace is None else self._redact(trace))
        loop = self._loop
        tasks = () if loop is None else tuple(slot.state for slot in loop.slots)
        if self._state.state is State.PAUSED:
            paused = TaskState(State.PAUSED)
            tasks = tuple(each if each.state is State.FAILED else paused for each in tasks)
        if self._state.state is State.FAILED:  # no task goes on
            tasks = tuple(each if each.state is State.FAILED else self._state for each in tasks)
        topics = frozenset() if loop is None else frozenset(loop.topics)
        status = RunStatus(self._state, tasks, topics)
        if status != self._told:
            self._told = status
            self._listener(status)
