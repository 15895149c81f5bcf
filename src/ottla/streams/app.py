"""App: a topology and the settings it runs with."""

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from ottla.streams import later
from ottla.streams.calls import operator
from ottla.streams.errors import StreamsError
from ottla.streams.graph import Node, Source
from ottla.streams.options import EXACTLY_ONCE, FAIL, SKIP, make_options
from ottla.streams.stream import Stream
from ottla.streams.table import Table
from ottla.streams.topics import Format, check_round_trip, make_source
from ottla.streams.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.streams.queries import Query
    from ottla.streams.running.driver import Runner
    from ottla.streams.testing import TestDriver


class App:
    """An application that reads topics, computes and writes topics, exactly once.

        app = App("shop", bootstrap="localhost:9092")
        orders = app.stream("orders", value="shop string, amount double")
        orders.group_by("shop").agg(F.sum("amount").alias("revenue"), name="revenue").to("revenue")
        app.run()

    name                 names the app's consumer group, internal topics and state; never change it
    bootstrap            addresses of brokers, by default those of $OTTLA_BOOTSTRAP or of the profile in use, with its
                         login, or else localhost:9092
    master               Spark's master: "local[*]" for all cores of this machine, "local[2]" for two
    on_bad_record        records that cannot be decoded: "fail", "skip" or "dead-letter"
    on_error             rows for which a function raises an exception: the same three
    on_late              rows that come after their window has closed: "skip" or "dead-letter"
    dead_letter_topic    the topic of dead letters, by default the app's name with "-dead-letters"
    state_dir            a directory for the index of the state on each machine
    http                 the address that answers queries; port 0 takes a free one
    batch_rows           about how many records a task reads at once
    interval_ms          the least time between the starts of two batches
    settings             settings of the Kafka client, such as security.protocol
    config               settings of Spark, such as spark.executor.memory
    """

    @operator
    def __init__(
        self,
        name: str,
        *,
        bootstrap: str | None = None,
        master: str = "local[*]",
        guarantee: str = EXACTLY_ONCE,
        on_bad_record: str = FAIL,
        on_error: str = FAIL,
        on_late: str = SKIP,
        dead_letter_topic: str | None = None,
        state_dir: str | None = None,
        http: str = "127.0.0.1:0",
        batch_rows: int = 100_000,
        interval_ms: int = 50,
        settings: Mapping[str, str] | None = None,
        config: Mapping[str, object] | None = None,
        standbys: int = 0,
    ) -> None:
        if standbys:
            later.refuse(later.STANDBYS, "App")
        self.options = make_options(
            name=name,
            bootstrap=bootstrap,
            master=master,
            guarantee=guarantee,
            on_bad_record=on_bad_record,
            on_error=on_error,
            on_late=on_late,
            dead_letter_topic=dead_letter_topic,
            state_dir=state_dir,
            http=http,
            batch_rows=batch_rows,
            interval_ms=interval_ms,
            settings=settings or {},
            config=config or {},
        )
        from ottla.streams.running.sessions import create_context

        self.spark_context = create_context(self.name, self.options.master, self.options.config)
        """It is there once the App is, because no Column can be made without."""
        self._topology = Topology(self)
        self._runner: Runner | None = None

    @property
    def name(self) -> str:
        return self.options.name

    @cached_property
    def spark(self) -> "SparkSession":
        """The Spark session. It is made when a step with a Column is added, or whoever else asks for it first."""
        from ottla.streams.running.sessions import create_session

        return create_session(self.name, self.options.master, self.options.config)

    @property
    def nodes(self) -> list[Node]:
        """The nodes that have an effect: sinks, named stores, and functions that peek."""
        return list(self._topology.roots)

    @operator
    def stream(
        self,
        topic: str,
        *,
        key: Format = "binary",
        value: Format = "binary",
        key_column: str = "key",
        time: str | None = None,
        start: str = "earliest",
    ) -> Stream:
        """The records of a topic.

        `key` and `value` say what the bytes are: "string", "long" and so on for one column, `value` or `key_column`;
        fields such as "id long, amount double" for JSON whose fields become columns; or a format of
        `ottla.streams.formats`. `time` is the column with the event time, a timestamp or a long with milliseconds, by
        default the record's timestamp. `start` says where a new app begins: "earliest" or "latest".
        """
        label = f"stream {topic!r}"
        self._topology.check_topic("stream", topic)
        source = make_source(label, topic, key=key, value=value, key_column=key_column, time=time, start=start)
        return Stream(self._topology, self._add_source(source))

    @operator
    def table(
        self,
        topic: str,
        *,
        key: Format = "string",
        value: Format = "binary",
        key_column: str = "key",
        time: str | None = None,
        name: str | None = None,
        versioned: object = None,
    ) -> Table:
        """A topic as a table: each record replaces the one before with the same key, and a record without a value
        deletes its key. The table can be queried by its name, by default that of the topic."""
        if versioned is not None:
            later.refuse(later.VERSIONED_TABLES, "table")
        label = f"table {topic!r}"
        self._topology.check_topic("table", topic)
        source = make_source(
            label,
            topic,
            key=key,
            value=value,
            key_column=key_column,
            time=time,
            start="earliest",
            name=name or topic,
            is_table=True,
        )
        return Table(self._topology, self._add_source(source))

    def _add_source(self, source: Source) -> Source:
        for sink in self._topology.sinks_of_topic(source.topic):
            check_round_trip(source.label, sink, source)
        return self._topology.add_source(source)

    @operator
    def test(
        self, *, partitions: int | Mapping[str, int] = 3, split: int | None = None, start_ms: int = 0
    ) -> "TestDriver":
        """The app in memory, for tests: `with app.test() as test`, then `test.feed(...)` and `test.read(...)`.

        `partitions` is the number of partitions of every topic, or of each by name. `split` is a seed: the input is cut
        into random batches. `start_ms` is the time at which the driver's clock begins.
        """
        from ottla.streams.testing import TestDriver

        return TestDriver(
            self.name,
            self.nodes,
            partitions=partitions,
            split=split,
            spark=lambda: self.spark,
            options=self.options,
            start_ms=start_ms,
        )

    def describe(self, form: str = "text") -> str:
        """What the app does, for people: "text" has its subtopologies, topics and stores, "svg" is a picture."""
        if form == "svg":
            from ottla.streams.describing import draw_svg

            return draw_svg(self.name, self.nodes)
        if form != "text":
            raise StreamsError(f"describe: {form!r}: it can be 'text' or 'svg'")
        from ottla.streams.planning.description import describe
        from ottla.streams.planning.planner import make_plan

        return describe(make_plan(self.name, self.nodes, None))

    def run(self) -> None:
        """Run the app until it is stopped: by Ctrl-C, SIGTERM or `ottla stream stop`. Shows progress on a terminal.

        Raises StreamsError if the app must end, and FencedApp if another copy of it was started.
        """
        from ottla.streams.running.foreground import run_in_foreground

        self.start()
        run_in_foreground(self)

    def start(self) -> None:
        """Start the app in the background. Returns when everything is prepared and batches begin."""
        from ottla.streams.running.driver import Runner

        if self._runner is not None:
            raise StreamsError(f"app {self.name!r} is running already")
        if not self.nodes:
            raise StreamsError(f"app {self.name!r} writes nothing; `to` writes a stream or table to a topic")
        runner = Runner(self.options, self.nodes, self.spark_context, lambda: self.spark)
        runner.start()
        self._runner = runner

    def stop(self) -> None:
        """Let running batches end and stop the app. Raises what has ended the app, if it has ended by itself."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.stop()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the started app has ended by itself or was told to stop; False if the time is over before."""
        return self._running.wait(timeout_s)

    def progress(self) -> dict[str, Any]:
        """How far the started app is: rows, rates, lag and troubles of each subtopology, and the stores."""
        return self._running.report_progress()

    def query(self, name: str) -> "Query":
        """Reads a store of the started app: `app.query("revenue").get("shop-1", window=at)`."""
        from ottla.streams.queries import Query

        return Query(self, name, token=self._running.http_token)

    @property
    def http_address(self) -> str:
        """Where the started app answers queries and shows its pages, such as http://127.0.0.1:8080."""
        return self._running.http_address

    @property
    def _running(self) -> "Runner":
        if self._runner is None:
            raise StreamsError(f"app {self.name!r} is not running; app.start() or app.run() starts it")
        return self._runner

    def global_table(self, *_: Any, **__: Any) -> NoReturn:
        later.refuse(later.GLOBAL_TABLES, "global_table")
