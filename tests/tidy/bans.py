"""What a module may not touch unless it is named for it: one table, each exception with its reason.

Patterns are the names that `source.uses` produces; `*` matches anything, dots included.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from fnmatch import translate
from functools import cache

from tests.tidy.source import Finding, Module, names_used, uses, within

EVERYWHERE = ("ottla", "pyspark_ottla")
COMMAND_LINE = "the outermost layer: it hands the real thing to everything below"


@dataclass(frozen=True)
class Ban:
    name: str
    forbidden: tuple[str, ...]
    harmless: tuple[str, ...] = ()
    where: tuple[str, ...] = EVERYWHERE
    allowed: Mapping[str, str] = field(default_factory=dict)
    """Module (or package) -> why it is the exception."""
    wrong: tuple[str, ...] = ()
    """Snippets that this ban must catch."""
    right: tuple[str, ...] = ()
    """Snippets that it must let pass."""

    def findings(self, module: Module) -> Iterator[Finding]:
        """Every line that breaks this ban, exceptions applied."""
        if not any(within(module.name, allowed) for allowed in self.allowed):
            yield from self.findings_without_exceptions(module)

    def findings_without_exceptions(self, module: Module) -> Iterator[Finding]:
        if not any(within(module.name, place) for place in self.where):
            return
        lines: dict[int, str] = {}
        forbidden = _forbidden_among(names_used(module), self.forbidden, self.harmless)
        if not forbidden:
            return
        for line, name in uses(module):
            if name in forbidden:
                lines.setdefault(line, name)
        for line, name in sorted(lines.items()):
            yield Finding(module.name, line, f"{self.name}: {name}")


def _forbidden_among(names: Set[str], forbidden: tuple[str, ...], harmless: tuple[str, ...]) -> set[str]:
    return {name for name in names if _forbids(name, forbidden, harmless)}


@cache
def _forbids(name: str, forbidden: tuple[str, ...], harmless: tuple[str, ...]) -> bool:
    """Kept for each name: most modules use the same ones."""
    bare = name.removesuffix("()")
    if _any_of(harmless)(bare):
        return name in forbidden
    matches = _any_of(forbidden)
    return bool(matches(name) or matches(bare))


@cache
def _any_of(patterns: tuple[str, ...]) -> Callable[[str], re.Match[str] | None]:
    """One regular expression for many patterns."""
    return re.compile("|".join(map(translate, patterns)) or r"(?!)").match


BANS: tuple[Ban, ...] = (
    Ban(
        "asyncio in a synchronous room",
        ("asyncio", "asyncio.*", "syntax.async"),
        where=(
            "ottla.storage",
            "ottla.records.batch",
            "ottla.records.record",
            "ottla.records.compression",
            "ottla.records.columns",
            "ottla.config",
            "ottla.errors",
            "ottla.system.clock",
            "ottla.coordinators",
            "ottla.cluster.changes",
            "ottla.cluster.image",
            "ottla.cluster.topics",
            "ottla.cluster.placement",
            "ottla.cluster.registration",
            "ottla.cluster.partitions",
            "ottla.cluster.configs",
            "ottla.cluster.features",
        ),
        allowed={
            "ottla.coordinators.runtime": "the one place that waits on behalf of the state machines",
            "ottla.coordinators.groups.coordinator": "operations that handlers wait for",
            "ottla.coordinators.transactions.coordinator": "operations that handlers wait for",
            "ottla.coordinators.transactions.errands": "an errand is retried until it is done",
            "ottla.coordinators.transactions.peers": "another broker is waited for",
            "ottla.coordinators.transactions.remote_peers": "another broker is waited for",
            "ottla.coordinators.groups.errands": "a long search runs in a thread",
            "ottla.coordinators.transactions.admission": "asks another coordinator before an append",
        },
        wrong=("import asyncio", "from asyncio import Event", "async def load(): ...", "def f():\n import asyncio"),
        right=("def load() -> None: ...",),
    ),
    Ban(
        "kazoo",
        ("kazoo", "kazoo.*"),
        allowed={"ottla.cluster.zookeeper": "the only user of ZooKeeper, and the owner of every znode"},
        wrong=("import kazoo.client", "from kazoo.client import KazooClient"),
    ),
    Ban(
        "kio, which only the generator and the tests use",
        ("kio", "kio.*"),
        wrong=("import kio", "from kio.schema.fetch import v4"),
    ),
    Ban(
        "pyspark",
        ("pyspark", "pyspark.*"),
        allowed={
            "ottla.spark": "helpers for PySpark users",
            "ottla.connect.running": "tasks of connectors are Spark's",
            "ottla.connect.connectors.spark": "data sources of PySpark as connectors",
            "ottla.streams": "its tasks are Spark's, and Spark computes its columns",
            "ottla.connect.serving": "names the type of the context that connectors share",
            "ottla.cli.sql": "the command that is a Spark session",
            "ottla.cli.demo.pipeline": "the demo's job, a program of its own",
            "pyspark_ottla": "the data source itself",
        },
        wrong=("from pyspark.sql import SparkSession", "def f():\n import pyspark"),
    ),
    Ban(
        "numba",
        ("numba", "numba.*"),
        allowed={
            "ottla.records.columns": "the record kernels",
            "ottla.pipeline.kernels": "between record batches and Arrow's buffers",
            "ottla.pipeline.packing": "from Arrow's buffers to records",
            "ottla.pipeline.memcpy": "what both of them copy with",
            "ottla.storage.cleaner": "compaction runs the kernels in its own process",
            "ottla.connect.connectors.postgresql.kernels": "from PostgreSQL's log to Arrow's buffers",
        },
        wrong=("import numba", "from numba import njit"),
    ),
    Ban(
        "pyarrow",
        ("pyarrow", "pyarrow.*"),
        allowed={
            "ottla.console.facts.exporting": "writes Parquet files",
            "ottla.connect": "records move as columns",
            "ottla.pipeline.decoding": "record batches to Arrow columns",
            "ottla.pipeline.encoding": "Arrow columns to record batches",
            "ottla.pipeline.formats": "columns out of values",
            "ottla.pipeline.pandas_later": "keeps pyarrow from importing pandas",
            "ottla.reading": "hands Arrow tables to a notebook",
            "ottla.spark.jobs": "a task hands its report to Spark as an Arrow batch",
            "ottla.spark.sinks": "hands rows to the sender as Arrow batches",
            "ottla.streams": "rows between the steps of a topology are Arrow tables",
            "pyspark_ottla": "Spark and Python exchange Arrow batches",
        },
        wrong=("import pyarrow", "from pyarrow import Table"),
    ),
    Ban(
        "a task without an owner",
        (
            "*.create_task",
            "*.ensure_future",
            "asyncio.TaskGroup",
            "asyncio.Task()",
            "asyncio.run",
            "asyncio.run_coroutine_threadsafe",
            "asyncio.Runner",
        ),
        allowed={
            "ottla.console.app": "takes samples for the charts, beside the requests",
            "ottla.system.background": "the one table of background work",
            "ottla.cluster.auto_creation": "creates topics for clients that do not wait for it",
            "ottla.cluster.change_queue": "appends to the metadata log, also for callers that stopped waiting",
            "ottla.cluster.metadata": "snapshots and shared reads of the log, which no caller waits for",
            "ottla.cluster.local_copy": "writes behind the replay, which waits for no disk",
            "ottla.cluster.connection": "opens a new session when the last one has expired",
            "ottla.connect.rest.handshakes": "the TLS handshakes that are in progress",
            "ottla.server.connection": "the task of the request a connection is waiting for",
            "ottla.observability.endpoint": "asks other brokers for a part of a page, until its reader is gone",
            "ottla.server.handshakes": "the TLS handshakes that are in progress",
            "ottla.server.sending": "the task that reads a cold range for the connection's writer",
            "ottla.coordinators.runtime": "the writers of its shards",
            "ottla.replication.peer_login": "logs in again on connections that are open",
            "ottla.replication.peers": "connects to brokers again that nobody may be waiting for",
            "ottla.replication.isr_proposals": "takes ISR changes to the metadata, one append at a time",
            "ottla.replication.moves": "copies replicas for administrators that do not wait for it",
            "ottla.replication.fetcher": "connects to a leader again, and asks it for ranges",
            "ottla.replication.truncation": "writes recovery points before truncated logs grow again",
            "ottla.coordinators.transactions.errands": "a group of tasks that ends with the errand that opened it",
            "ottla.coordinators.transactions.remote_peers": "the requests to other brokers that are in flight",
            "ottla.cli": COMMAND_LINE,
            "ottla.log.engine": "runs the loop of the broker behind a log, and what its callers wait for",
            "ottla.testing": "runs the loop of a test's broker",
        },
        wrong=(
            "import asyncio\nasyncio.create_task(x())",
            "loop.create_task(x())",
            "self.loop.ensure_future(x)",
            "from asyncio import TaskGroup as G\nasync def f():\n async with G() as g: ...",
            "asyncio.get_running_loop().create_task(x())",
        ),
        right=("import asyncio\nasync def f(x: asyncio.Future[int], t: asyncio.Task[int]) -> int: return await x",),
    ),
    Ban(
        "a thread",
        (
            "threading",
            "threading.*",
            "_thread",
            "_thread.*",
            "concurrent",
            "concurrent.*",
            "queue",
            "queue.*",
            "asyncio.to_thread",
            "*.run_in_executor",
        ),
        allowed={
            "ottla.console.caching": "a lock only: requests share what was read",
            "ottla.cli.console": "waits for the end of its input, beside the server",
            "ottla.system.threads": "offload, the one door to threads",
            "ottla.cluster.zookeeper": "kazoo's threads, and the watchdog of the event loop",
            "ottla.cluster.memory_store": "a lock only: brokers of one process share it from their own threads",
            "ottla.storage.files": "a lock only: a flush may use a descriptor that the loop wants to close",
            "ottla.log.engine": "the broker behind a log runs beside its callers",
            "ottla.pipeline.pandas_later": "hides a module from its own thread and from no other",
            "ottla.testing": "a broker beside the test, and its offload, which must know when it is idle",
            "ottla.cli.connect.foreground": "the event that a signal sets",
            "ottla.cli.connect.progress": "the event that a signal sets",
            "ottla.connect.running.contexts": "Spark is started while the worker does other things",
            "ottla.connect.rest.server": "answers beside whatever the worker does",
            "ottla.connect.settings.redaction": "a lock only: connectors add their secrets from threads of their own",
            "ottla.connect.connectors.jms.session": "a queue only: what the thread of stomp.py has received",
            "ottla.connect.running.ownership": "a lock only: whoever pauses a run renews its epoch too",
            "ottla.connect.running.run": "a thread for each connector, as Spark's local properties ask for",
            "ottla.connect.worker.configs": "a lock only: those who ask and the worker's thread share a client",
            "ottla.connect.worker.statuses": "a lock only: those who ask and the worker's thread share a client",
            "ottla.connect.worker.standalone": "a lock only: those who ask share the stores",
            "ottla.connect.worker.membership": "heartbeats, whatever the rest of the worker waits for",
            "ottla.connect.worker.worker": "the worker's own thread",
            "ottla.streams.state.server": "a thread for each connection",
            "ottla.streams.state.service": "locks of tables, and restores in the background",
            "ottla.streams.running.driver": "a thread for each subtopology, as Spark's local properties ask for",
            "ottla.streams.running.sessions": "loads modules while the JVM starts",
            "ottla.streams.running.idleness": "a lock only: the threads of subtopologies share it",
            "ottla.streams.running.hearing": "a lock only: the threads of subtopologies share it",
            "ottla.streams.running.following": "a lock only: the threads of subtopologies share it",
            "ottla.streams.running.purging": "a lock only: the threads of subtopologies share it",
            "ottla.streams.running.loop": "the event that tells the threads to stop",
            "ottla.streams.running.state_servers": "watches the servers and tells them of commits",
            "ottla.streams.running.local_state": "starts its processes at the same time",
            "ottla.streams.state.tables": "a lock only: a table may be measured while another thread closes it",
            "ottla.streams.state.tailing": "a lock only: threads borrow clients",
            "ottla.streams.state.http": "answers HTTP beside the driver",
            "ottla.streams.state.remote_stores": "a lock only: threads borrow clients",
        },
        wrong=(
            "import threading",
            "from concurrent.futures import ThreadPoolExecutor",
            "loop.run_in_executor(None, f)",
            "import asyncio\nasyncio.to_thread(f)",
        ),
    ),
    Ban(
        "a process",
        (
            "subprocess",
            "subprocess.*",
            "multiprocessing",
            "multiprocessing.*",
            "os.fork",
            "os.exec*",
            "os.spawn*",
            "os.system",
            "os.popen",
            "os.kill",
            "os._exit",
            "*.create_subprocess_exec",
            "*.create_subprocess_shell",
        ),
        allowed={
            "ottla.storage.cleaner": "compaction runs in a child, so that it keeps neither the GIL nor memory",
            "ottla.cli": COMMAND_LINE,
            "ottla.testing": "a broker as a child of the test",
            "ottla.streams.state.starting": "starts state servers",
            "ottla.streams.running.handover": "asks whether the owner of an abandoned directory is gone, with signal 0",
            "ottla.streams.state.server": "ends without waiting for threads that wait for a broker",
        },
        wrong=("import subprocess", "import os\nos.kill(1, 9)", "from multiprocessing import Process"),
        right=("import os\nos.getpid()",),
    ),
    Ban(
        "a socket",
        (
            "socket",
            "socket.*",
            "ssl",
            "ssl.*",
            "select",
            "select.*",
            "selectors",
            "selectors.*",
            "socketserver.*",
            "http.*",
            "urllib.request",
            "urllib.request.*",
            "asyncio.start_server",
            "asyncio.open_connection",
            "*.create_server",
            "*.create_connection",
            "*.create_datagram_endpoint",
            "*.sock_*",
            "*.add_reader",
            "*.add_writer",
            "os.sendfile",
        ),
        allowed={
            "ottla.console.facts.asking": "asks workers of Connect and Streams apps, which speak HTTP",
            "ottla.console.guarding": "reads cookies, which http.cookies parses",
            "ottla.server.listeners": "listens",
            "ottla.observability.endpoint": "listens for those who watch",
            "ottla.server.sending": "writes answers, and sends files without passing them through Python",
            "ottla.system.network": "connects to other brokers",
            "ottla.cluster.zookeeper": "connects kazoo to a server, with TLS, and limits how long it tries",
            "ottla.client.connection": "a client's connection, for APIs that the client library lacks",
            "ottla.client.security": "names the TLS context of a client",
            "ottla.client.stores": "makes the TLS context of a client",
            "ottla.client.tokens": "asks a token endpoint, which speaks HTTP",
            "ottla.connect.rest.server": "listens for users of Connect's REST API",
            "ottla.connect.rest.listeners": "the type of a TLS context",
            "ottla.connect.rest.handshakes": "accepts connections of encrypted listeners of Connect's REST API",
            "ottla.pipeline.registry": "asks a schema registry, which speaks HTTP",
            "ottla.security.tls": "TLS contexts",
            "ottla.security.tls_objects": "the TLS contexts of listeners",
            "ottla.security.providers": "asks an OAuth provider for keys and tokens, in a thread",
            "ottla.server.handshakes": "accepts the connections of listeners with TLS",
            "ottla.server.hellos": "waits for the first message of a TLS handshake",
            "ottla.cli.broker_process": "knows the error of a host that cannot be found",
            "ottla.cli.stream.pages": "asks the pages of a running app",
            "ottla.cli.connect.asking": "asks the REST API of a worker",
            "ottla.connect.serving": "knows the name of this machine",
            "ottla.cli.certificates": "knows the name of this machine",
            "ottla.cli.doctor": "looks at names, ports and ZooKeeper, as a client of each would",
            "ottla.cli.ports": "finds a free port for a server that cannot choose one",
            "ottla.cli.cluster.zookeeper_server": "asks a server whether it is ready",
            "ottla.testing": "keeps the port of a broker that is down, and makes topics without a client library",
            "ottla.streams.state.server": "listens for tasks and drivers",
            "ottla.streams.state.client": "connects to state servers",
            "ottla.streams.running.cluster_state": "asks which address an executor's host has",
            "ottla.streams.state.connections": "frames over a socket",
            "ottla.streams.state.http": "listens for those who ask for rows",
            "ottla.streams.queries": "asks a running app over HTTP",
            "ottla.cli.demo.pipeline": "waits for the end of its input, and looks at its app meanwhile",
            "ottla.cli.demo.results": "asks the running app over HTTP, as anybody can",
        },
        wrong=(
            "import socket",
            "from socket import AF_INET",
            "loop.create_server(f)",
            "loop.add_writer(3, f)",
            "import os\nos.sendfile(1, 2, 0, 10)",
        ),
    ),
    Ban(
        "the file system",
        (
            "builtins.open",
            "io.open",
            "os.*",
            "pathlib",
            "pathlib.*",
            "tempfile",
            "tempfile.*",
            "shutil",
            "shutil.*",
            "glob",
            "glob.*",
            "fcntl",
            "fcntl.*",
            "mmap",
            "mmap.*",
        ),
        harmless=(
            "os.environ",
            "os.environ.*",
            "os.getenv",
            "os.getpid",
            "os.cpu_count",
            "os.strerror",
            "os.sep",
            "os.linesep",
            "os.fspath",
            "os.PathLike",
            "os.path",
            "os.path.join",
            "os.path.basename",
            "os.path.dirname",
            "os.path.split",
            "os.path.splitext",
            "os.path.normpath",
            "os.path.isabs",
            "pathlib.PurePath",
            "pathlib.PurePosixPath",
            "os.urandom",
            "os.kill",
            "os._exit",
            "os.fork",
        ),
        allowed={
            "ottla.connect.connectors.files": "reads and writes the files of users",
            "ottla.connect.plugins.loading": "runs the Python files of plugin.path",
            "ottla.connect.rest.basic_auth": "reads the users of the REST API",
            "ottla.connect.settings.providers": "reads the files that references to config providers name",
            "ottla.storage.files": "the one file layer",
            "ottla.security.stores": "reads keys and certificates",
            "ottla.security.tls": "shows keys to OpenSSL, which reads files only",
            "ottla.client.defaults": "reads the profile that the user has chosen",
            "ottla.client.stores": "reads the files of certificates and keys that settings name",
            "ottla.client.tokens": "reads the file of a token that settings name",
            "ottla.server.sending": "os.sendfile and os.writev on its own socket",
            "ottla.server.outbox": "reads and probes for cold pages, on descriptors the file layer pinned",
            "ottla.observability.process": "reads /proc, which is no disk",
            "ottla.storage.cleaner.child": "os.nice: the priority of its own process",
            "ottla.spark.daemon": "looks where PySpark is installed",
            "ottla.spark.java": "looks for a Java on this machine",
            "ottla.spark.class_archive": "finds, marks and removes the archives that JVMs load their classes from",
            "pyspark_ottla.decoders": "reads the file of a schema",
            "ottla.spark.sessions": "tells Spark's workers where this package is",
            "ottla.cli": COMMAND_LINE,
            "ottla.testing": "fresh directories for a test's broker",
            "ottla.streams.running.driver": "names the directories of state and of what tasks hand over",
            "ottla.streams.running.handover": "files between two Python workers of a task",
            "ottla.streams.running.local_state": "the directories and logs of its processes",
            "ottla.streams.state.starting": "the directory, lock and log of a server that outlives its starter",
            "ottla.streams.state.tables": "makes, locks and removes the directories of its tables",
        },
        wrong=(
            "open('x')",
            "import os\nos.unlink('x')",
            "from os import rename",
            "import os\nos.path.exists('x')",
            "from pathlib import Path",
            "import mmap",
            "import os as system\nsystem.fsync(3)",
            "text = open('x').read()",
        ),
        right=("import os\nos.path.join('a', 'b')", "disk.open('x')", "import os\nos.environ.get('HOME')"),
    ),
    Ban(
        "the clock of the machine",
        (
            "time",
            "time.*",
            "datetime.datetime.now",
            "datetime.datetime.utcnow",
            "datetime.datetime.today",
            "datetime.date.today",
            "*.datetime.now",
            "*.datetime.utcnow",
        ),
        allowed={
            "ottla.console.serving": "hands the clock to everything below",
            "ottla.testing.local_cluster": "waits for brokers that run in other threads",
            "ottla.testing.security": "certificates are good from now on",
            "ottla.connect.transforms.date_patterns": "Java reads years of two digits as near to today",
            "ottla.system.clock": "the wall clock",
            "ottla.client.backoff": "how long a client waits, and that it waits",
            "ottla.cli": COMMAND_LINE,
            "ottla.connect.connectors.datagen.datagen_source": "how many records are due",
            "ottla.connect.connectors.delta.delta_sink": "how long rows have waited for a commit",
            "ottla.connect.connectors.files.directory_sink": "when to look at a range that is short again",
            "ottla.connect.connectors.http.http_source": "when to ask the server again, and that it waits",
            "ottla.connect.connectors.jdbc.source": "when to look for new rows and tables again",
            "ottla.connect.connectors.s3.s3_sink": "when to look at a range that is short again",
            "ottla.connect.connectors.spark.spark_source": "when to look for new rows again",
            "ottla.connect.connectors.s3.s3_source": "when to look for new objects again",
            "ottla.connect.connectors.mirror": "when to look for topics and groups again",
            "ottla.connect.running.loop": "when a task that has failed may run again",
            "ottla.connect.running.source_tasks": "commits before the time of its transaction is over",
            "ottla.connect.running.sink_tasks": "begins no further batch when its round has lasted long enough",
            "ottla.connect.running.sink_loop": "when to look for new topics again",
            "ottla.connect.worker.starting": "hands the clock to everything below",
            "ottla.streams.running.driver": "hands the clock to everything below",
            "ottla.streams.running.loop": "when a batch may begin, and how long a task has failed",
            "ottla.streams.running.cluster_state": "when servers were last asked, how long executors are waited for",
            "ottla.streams.state.server": "hands the clock to everything below",
        },
        wrong=(
            "import time\ntime.monotonic()",
            "from time import time as now",
            "import time",
            "import datetime\ndatetime.datetime.now()",
            "from datetime import datetime\ndatetime.now()",
        ),
        right=("loop.time()", "from datetime import timedelta", "clock.now_ms()"),
    ),
    Ban(
        "randomness that no seed decides",
        (
            "random.*",
            "random.Random()",
            "secrets",
            "secrets.*",
            "uuid.uuid1",
            "uuid.uuid4",
            "os.urandom",
            "numpy.random*",
        ),
        harmless=("random.Random",),
        allowed={
            "ottla.console.serving": "makes the token of a console and the key of its cookies",
            "ottla.broker.broker": "makes the one Random of a real broker, unless a simulator brings its own",
            "ottla.cli.ports": "so that two callers pick different ports",
            "ottla.cli.certificates": "the password of the key stores",
            "ottla.cli.user": "salts and passwords of users",
            "ottla.testing.security": "passwords of a test's users",
            "ottla.testing.users": "salts of a test's users",
            "ottla.cli.demo.story": "makes the Random of the demo's shop, always the same",
            "ottla.client.client": "the nonce of an authentication",
            "ottla.connect.connectors.datagen.datagen_source": "makes the Random of each record, from its position",
            "ottla.connect.connectors.s3.s3_sink": "the name of each run of a sink, of which one owns a ledger",
            "ottla.streams.running.driver": "the token of an app, and the name of each of its starts",
            "ottla.streams.state.server": "the challenge of an authentication",
            "ottla.streams.testing": "makes the Random of a test from the seed that the test names",
            "ottla.streams.state.client": "the jitter of its pauses",
        },
        wrong=(
            "import random\nrandom.random()",
            "from random import Random\nRandom()",
            "import uuid\nuuid.uuid4()",
            "from secrets import token_bytes",
            "import os\nos.urandom(16)",
            "from random import choice",
        ),
        right=(
            "from random import Random\ndef f(random: Random) -> int: return random.randrange(3)",
            "import uuid\nuuid.UUID(bytes=x)",
        ),
    ),
    Ban(
        "iteration over a set, whose order differs from run to run",
        ("syntax.set_iteration",),
        wrong=("for x in {1, 2}: ...", "[x for x in set(y)]", "for x in frozenset(y): ..."),
        right=("for x in sorted(set(y)): ...", "{x for x in y}"),
    ),
    Ban(
        "code that comes as data",
        (
            "builtins.eval",
            "builtins.exec",
            "pickle*",
            "marshal*",
            "shelve*",
            "dill*",
            "yaml*",
            "cloudpickle*",
            "pyspark.cloudpickle*",
        ),
        allowed={
            "ottla.storage.cleaner.child": "what the broker that has started it tells it",
            "ottla.cli.stream.running": "the file of the app that is to run",
            "ottla.connect.plugins.loading": "the files of plugin.path",
            "ottla.connect.connectors.spark.spark_source": "what the driver has made for its own tasks",
            "ottla.connect.running.run": "a copy of what it has itself",
            "ottla.wire.source": "readers and writers that are compiled from our own tables of messages",
            "ottla.wire.error_codes": "a function that is compiled from our own tables of messages",
        },
        wrong=("eval('1')", "import pickle\npickle.loads(b'')", "from yaml import load", "exec('x = 1')"),
        right=("import json\njson.loads('1')", "import ast\nast.literal_eval('1')"),
    ),
    Ban(
        "printing",
        ("builtins.print", "sys.stdout*", "sys.stderr*"),
        allowed={
            "ottla.cli": "talks to a person",
            "ottla.storage.cleaner.child": "its standard output is a pipe to the broker",
            "ottla.streams.running.foreground": "shows progress on a terminal",
            "ottla.streams.state.server": "tells the process that has started it where it listens",
        },
        wrong=("print(1)", "import sys\nsys.stdout.write('x')"),
    ),
    Ban(
        "a hole left for later",
        ("builtins.NotImplementedError",),
        allowed={"ottla.connect.connectors.spark.data_sources": "what data sources raise for what they do not have"},
        wrong=("raise NotImplementedError", "raise NotImplementedError('later')"),
        right=("x.__eq__ = NotImplemented",),
    ),
    Ban(
        "a client library",
        ("confluent_kafka", "confluent_kafka.*", "aiokafka", "aiokafka.*", "kafka", "kafka.*"),
        allowed={
            "ottla.cli": "the commands are clients like any other",
        },
        wrong=("from confluent_kafka import Producer", "import aiokafka"),
    ),
    Ban(
        "uvloop, which only the command line chooses",
        ("uvloop", "uvloop.*"),
        allowed={"ottla.cli": COMMAND_LINE, "ottla.server.handshakes": "the TLS of the loop that was chosen"},
        wrong=("import uvloop",),
    ),
)
