"""A broker for tests, on a free port and in a new directory. Tests can inject faults and move the broker's clock.

    with ottla.testing.broker(num_partitions=3) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

    with ottla.testing.cluster(brokers=3) as cluster:
        cluster.brokers[0].kill()

The pytest fixtures `ottla_broker`, `ottla_session_broker` and `ottla_cluster` come with the package (`plugin.py`).

    local.py          the broker object that a test uses, and snapshots of its data
    local_cluster.py  several brokers, and their faults
    cuts.py           the connections between them
    questions.py      what a cluster asks its brokers
    store_server.py   the store of a cluster, served to brokers in child processes
    remote_store.py   that store in a child process
    store_messages.py the messages between the two
    plugin.py         the pytest plug-in with the fixtures
    launch.py         how a broker is started, and the interface to control it while it runs
    thread.py         runs the broker in a thread of the test's process
    process.py        runs the broker in a child process
    __main__.py       the child process
    clock.py          a clock and an event loop whose time can be moved
    topics.py         creates topics without a client library
    security.py       certificates and users of a broker with security
    users.py          creates users without a client library

Wherever Ottla is installed, pytest imports this package. So it imports nothing until a test starts a broker.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from os import PathLike

    from ottla.testing.local import LocalBroker, Snapshot
    from ottla.testing.local_cluster import LocalCluster
    from ottla.testing.security import TestSecurity

__all__ = ["LocalBroker", "LocalCluster", "Snapshot", "broker", "cluster"]


@contextmanager
def broker(
    *, process: bool = False, snapshot: "Snapshot | PathLike[str] | str | None" = None, **settings: Any
) -> "Iterator[LocalBroker]":
    """Runs a broker until the end of the `with` block, in this process or in a child process (`process=True`).

    Settings have Kafka's names with `_` for `.`. A broker with a `snapshot` starts with the data of the snapshot. The
    broker's directory is removed at the end of the block, also after an exception.

    `security="sasl_ssl"` (or ssl, sasl_plaintext) and `acls=True` make certificates and an administrator, whose
    settings are `client_settings` and `java_settings`. `mechanism` is how the administrator logs in.
    """
    from ottla.testing.local import LocalBroker

    security, others = _choose_security(settings)
    local = LocalBroker(others, process=process, snapshot=snapshot, security=security)
    try:
        local.restart()
        yield local
    finally:
        local.close()


@contextmanager
def cluster(brokers: int = 3, *, process: bool = False, **settings: Any) -> "Iterator[LocalCluster]":
    """Runs a cluster until the end of the `with` block, without ZooKeeper, in threads of this process or in child
    processes (`process=True`).

    All brokers have these settings, with Kafka's names and `_` for `.`. Topics have three replicas unless
    `default_replication_factor` says otherwise. `security` and `acls` are those of `broker`.
    """
    from ottla.testing.local_cluster import LocalCluster

    security, others = _choose_security(settings)
    local = LocalCluster(brokers, others, process=process, security=security)
    try:
        local.start()
        yield local
    finally:
        local.close()


def _choose_security(settings: dict[str, Any]) -> "tuple[TestSecurity | None, dict[str, Any]]":
    """Takes `security`, `acls` and `mechanism` out of the settings."""
    if not settings.keys() & {"security", "acls", "mechanism"}:
        return None, settings
    from ottla.testing.security import choose_security

    return choose_security(settings)


def __getattr__(name: str) -> Any:
    """Imports the classes when they are first used, for annotations and isinstance."""
    if name in ("LocalBroker", "Snapshot"):
        from ottla.testing import local

        return getattr(local, name)
    if name == "LocalCluster":
        from ottla.testing.local_cluster import LocalCluster

        return LocalCluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
