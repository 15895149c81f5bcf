"""Runs an app: plans it, prepares topics and state servers, and keeps a thread for each subtopology.

runner = Runner(options, nodes, context, make_session); runner.start(); runner.wait(); runner.stop()
"""

import os
import platform
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ottla.client.backoff import now_ms
from ottla.client.client import Client
from ottla.client.connection import Unreachable
from ottla.errors import KafkaError
from ottla.spark.class_archive import writes_archive
from ottla.spark.quick_start import warm_up, warm_up_sql
from ottla.streams.errors import StreamsError
from ottla.streams.graph import ColumnStep, Node, walk
from ottla.streams.options import DEAD_LETTER, AppOptions
from ottla.streams.planning import compatibility
from ottla.streams.planning.description import describe
from ottla.streams.planning.plan import AppPlan
from ottla.streams.planning.planner import make_plan
from ottla.streams.running.cluster_state import ClusterStateServers, ServerOrder
from ottla.streams.running.continuity import check_topics, check_unread, commit_starts, find_topic_ids, list_positions
from ottla.streams.running.explaining import explain_failure
from ottla.streams.running.following import Following, FollowingJobs
from ottla.streams.running.hearing import Hearing
from ottla.streams.running.idleness import Idleness
from ottla.streams.running.internal_topics import (
    CLUSTER_DEFAULT,
    count_partitions,
    create_internal_topics,
    create_topic,
    list_external_topics,
)
from ottla.streams.running.jobs import JobRunner
from ottla.streams.running.local_state import LocalStateServers
from ottla.streams.running.loop import LoopContext, SubtopologyLoop
from ottla.streams.running.pages import make_routes
from ottla.streams.running.progress import Progress
from ottla.streams.running.purging import Purging
from ottla.streams.running.registration import (
    FAILED,
    RUNNING,
    STOPPED,
    Registration,
    add_former,
    create_registry,
    find_registration,
    merge,
    register,
)
from ottla.streams.running.settings import client_settings, driver_client_settings, transaction_timeout_ms
from ottla.streams.running.state_servers import NoState, StateServers, WatchedServers
from ottla.streams.running.tasks import TaskPlan
from ottla.streams.state.http import HttpServer, make_query_routes
from ottla.streams.state.remote_stores import RemoteStores
from ottla.streams.tasks.placement import number_sources

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

TOKEN_VARIABLE: Final = "OTTLA_STREAM_TOKEN"
"""The environment variable with the token for queries and pages."""


class Runner:
    """One run of an app, from start to stop."""

    def __init__(
        self,
        options: AppOptions,
        nodes: Sequence[Node],
        context: "SparkContext",
        make_session: "Callable[[], SparkSession]",
    ) -> None:
        """`make_session` is called if the app has Column steps. Without a session, Spark loads half as many classes."""
        self._options = options
        self._nodes = nodes
        self._context = context
        self._make_session = make_session
        self._instance = uuid.uuid4().hex
        self._token = secrets.token_urlsafe(24)
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._warming = threading.Thread(target=self._warm_up, name=f"{options.name}-warm-up", daemon=True)
        self._has_columns = any(isinstance(each, ColumnStep) for each in walk(nodes))
        self._is_archiving = writes_archive(context.getConf().get("spark.driver.extraJavaOptions", "") or "")
        self._failure: StreamsError | None = None
        self._lock = threading.Lock()
        self._registration: Registration | None = None
        self._state: WatchedServers | None = None
        self._stores: RemoteStores | None = None
        self._http: HttpServer | None = None
        self._client = Client(client_settings(options))
        self.http_token = os.environ.get(TOKEN_VARIABLE)
        self.plan: AppPlan | None = None
        self.progress = Progress(options.name, [])

    def start(self) -> None:
        """Prepare everything and start the threads. Raises StreamsError if the app cannot run."""
        try:
            self._start()
        except (KafkaError, Unreachable) as error:
            self._end_servers()
            raise StreamsError(f"app {self._options.name!r}: {error}") from None
        except BaseException:
            self._end_servers()
            raise
        finally:
            self._client.close()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the app has ended by itself or was told to stop; False if the time is over before."""
        return self._stop.wait(timeout_s)

    def stop(self) -> None:
        """Let running batches end, then end the threads and the state servers. Raises what has ended the app."""
        self._stop.set()
        for thread in (*self._threads, self._warming):
            thread.join()
        self._end_servers()
        self._register_end()
        self._client.close()
        for each in self.progress.subtopologies.values():
            each.state = STOPPED
        if self._failure is not None:
            raise self._failure

    def report_progress(self) -> dict[str, Any]:
        """As a JSON object."""
        return self.progress.document(time.monotonic(), [] if self._state is None else self._state.status())

    @property
    def failure(self) -> StreamsError | None:
        return self._failure

    def _start(self) -> None:
        client = self._client
        self._warming.start()
        plan = make_plan(self._options.name, self._nodes, None)
        counts = count_partitions(client, list_external_topics(plan))
        plan = self.plan = make_plan(self._options.name, self._nodes, counts)
        described = compatibility.describe_state(plan, counts)
        create_registry(client)
        before = find_registration(client, self._options.name)
        if before is not None and before.topology:
            compatibility.check(before.topology, described)
            check_topics(client, plan, before)
            check_unread(client, plan, before)
            described = compatibility.add_former(before.topology, described)
        counts |= create_internal_topics(client, plan, counts)
        if DEAD_LETTER in (self._options.on_bad_record, self._options.on_error, self._options.on_late):
            create_topic(client, self._options.dead_letters, CLUSTER_DEFAULT, {})
        self.progress = Progress(self._options.name, [each.name for each in plan.subtopologies])
        with ThreadPoolExecutor(1) as pool:  # state servers take a second to start
            servers = pool.submit(self._start_state_servers, plan, counts)
            self._start_http(plan, counts)
            registered = self._register_start(client, plan, counts, described, before)
        numbers = number_sources(plan)
        context = LoopContext(
            self._options,
            self._stop,
            servers.result(),
            Idleness(plan, counts, numbers, time.monotonic),
            Hearing(plan, counts, numbers),
            self._is_owner,
            Purging(plan),
            Following(plan),
            bool(plan.stores),
            registered.topic_ids,
        )
        for unit in plan.subtopologies:
            tasks = TaskPlan(unit, self._options, client, numbers, counts, self._token)
            loop = self._make_loop(context, tasks, counts[unit.sources[0].topic])
            name = f"{self._options.name}-{unit.name}"
            self._threads.append(threading.Thread(target=self._run_loop, args=(loop,), name=name, daemon=True))
        if self._is_archiving:
            self._warming.join()  # its job has to be the first one
        for thread in self._threads:
            thread.start()

    def _warm_up(self) -> None:
        """Run a job of the kind that the first batch has, before that is planned. The archive of classes must have
        those of Spark's SQL, for other apps."""
        if self._is_archiving or self._has_columns:
            warm_up_sql(self._make_session())
        else:
            warm_up(self._context)

    def _make_loop(self, context: LoopContext, tasks: TaskPlan, partitions: int) -> SubtopologyLoop:
        unit, client = tasks.subtopology, Client(driver_client_settings(self._options))
        leader = context.following.find_leader(unit.name)
        jobs: JobRunner | FollowingJobs
        if leader is None:
            jobs = JobRunner(self._make_session() if self._has_columns else self._context, tasks)
        else:
            jobs = FollowingJobs(unit, client, context.following, leader)
        return SubtopologyLoop(context, unit, partitions, jobs, client, self.progress.subtopologies[unit.name])

    def _run_loop(self, loop: SubtopologyLoop) -> None:
        try:
            loop.run()
        except StreamsError as error:
            self._fail(error)
        except Exception as error:  # a mistake of ours: the app must not go on with one subtopology missing
            self._fail(StreamsError(explain_failure(error).message))

    def _fail(self, error: StreamsError) -> None:
        with self._lock:
            if self._failure is None:
                self._failure = error
        self._stop.set()

    # Servers

    def _start_http(self, plan: AppPlan, counts: Mapping[str, int]) -> None:
        """Pages and queries. Who asks needs the token of the environment, if there is one; off the loopback interface
        there must be one."""
        host, _, port = self._options.http.rpartition(":")
        stores = self._stores = RemoteStores(self._locate, self._token)
        views = stores.views(plan.stores, counts)
        routes = [
            *make_routes(self.report_progress, lambda: describe(plan), self._stop.set),
            *make_query_routes(lambda: views),
        ]
        self._http = HttpServer(routes, host, int(port), self.http_token)
        self._http.start()

    def _locate(self, store: str, partition: int) -> str:
        if self._state is None:
            raise StreamsError("the state servers are being started")
        return self._state.locate(store, partition)

    @property
    def http_address(self) -> str:
        """Where the app's pages and queries are answered, such as http://127.0.0.1:8080."""
        if self._http is None:
            raise StreamsError(f"app {self._options.name!r} is not running")
        return self._http.address

    def _start_state_servers(self, plan: AppPlan, counts: Mapping[str, int]) -> StateServers:
        if not plan.stores:
            return NoState()
        settings = client_settings(self._options)
        if self._options.master.startswith("local"):
            self._state = LocalStateServers(self.state_directory, settings, self._token, plan.stores, counts)
        else:
            order = ServerOrder(self.state_directory, settings, self._token)
            self._state = ClusterStateServers(self._context, order, plan.stores, counts)
        self._state.start()
        return self._state

    def _end_servers(self) -> None:
        if self._http is not None:
            self._http.stop()
        if self._stores is not None:
            self._stores.close()
        if self._state is not None:
            self._state.stop()
        self._http = self._stores = self._state = None

    @property
    def state_directory(self) -> str:
        """Where the app's state is on this machine."""
        base = self._options.state_dir or os.path.join(os.path.expanduser("~"), ".local", "share", "ottla-streams")
        return os.path.join(os.path.abspath(base), self._options.name)

    # Registration

    def _make_registration(self, plan: AppPlan, topology: dict[str, Any]) -> Registration:
        return Registration(
            app=self._options.name,
            instance=self._instance,
            state=RUNNING,
            address=self.http_address,
            host=platform.node(),
            pid=os.getpid(),
            started_ms=now_ms(),
            internal_topics=[each.name for each in plan.internal_topics],
            groups=sorted({each.group for each in plan.subtopologies}),
            state_dirs=[self.state_directory] if plan.stores else [],
            topology=topology,
            description=describe(plan),
        )

    def _register_start(
        self,
        client: Client,
        plan: AppPlan,
        counts: Mapping[str, int],
        topology: dict[str, Any],
        before: Registration | None,
    ) -> Registration:
        """Take over from older copies of the app, and see to it that every task has a committed position. What starts
        with other topologies have left behind stays registered."""
        started = self._make_registration(plan, topology)
        if before is not None:
            started = add_former(started, before)
        self._registration = started
        register(client, started)
        commit_starts(client, plan, counts, before, transaction_timeout_ms(self._options))
        topic_ids = {**started.topic_ids, **find_topic_ids(client, plan)}
        positions = merge(started.positions, list_positions(plan))
        begun = replace(started, topic_ids=topic_ids, positions=positions)
        if begun != started:
            self._registration = begun
            register(client, begun)
        return begun

    def _is_owner(self, client: Client) -> bool:
        found = find_registration(client, self._options.name)
        return found is None or found.instance == self._instance

    def _register_end(self) -> None:
        """Say that the app has ended, unless another copy has taken over. A broker that is away is not waited for."""
        if self._registration is None:
            return
        client = Client(driver_client_settings(self._options))
        state, message = (STOPPED, "") if self._failure is None else (FAILED, str(self._failure))
        try:
            if self._is_owner(client):
                register(client, replace(self._registration, state=state, message=message))
        except (KafkaError, Unreachable):
            return
        finally:
            client.close()
            self._registration = None
