"""What `ottla up` does: runs one broker in this process. Its options are in `up.py`.

The first SIGTERM or SIGINT stops it gracefully, within a deadline; the second ends the process at once.
"""

import argparse
import asyncio
import errno
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import NoReturn

from ottla import __version__
from ottla.broker.broker import METRICS, Broker
from ottla.cli import STARTED_S, process
from ottla.cli.command_error import FAILURE, USAGE_ERROR, CommandError
from ottla.cli.exposure import check_exposure, warn_of_loopback
from ottla.cli.settings import broker_config, data_directories
from ottla.cluster.metadata_files import DamagedMetadata
from ottla.cluster.metadata_log import LogBehind, LogUnavailable
from ottla.config import BrokerConfig, ConfigError
from ottla.config.listeners import address_of
from ottla.errors import KafkaError
from ottla.observability import logs
from ottla.storage.directories import DirectoryError
from ottla.system.network import has_address
from ottla.system.threads import Threads

STOP_DEADLINE_S = 8.0  # below the ten seconds that container runtimes wait before they kill
STOP_GRACE_S = 1.5
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

logger = logging.getLogger("ottla")


def run(options: argparse.Namespace) -> int:
    logs.configure(sys.stderr, options.log_level)
    read_only = options.read_only is not None
    if read_only:
        options.data = _require_directory(options)
    config = broker_config(options, os.environ)
    check_exposure(config)
    warn_of_loopback(config)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(config, read_only, options.console))
    except CommandError:
        raise
    except Exception as error:
        logger.debug("the broker failed", exc_info=True)
        raise CommandError(_explain(error, config), FAILURE) from error


def _require_directory(options: argparse.Namespace) -> str:
    """The directory of --read-only, which must exist, while a broker creates that of --data."""
    if options.data is not None:
        raise CommandError("--data and --read-only cannot be used together", USAGE_ERROR)
    path: str = options.read_only
    for directory in path.split(","):
        try:
            os.listdir(directory)
        except OSError as error:
            raise CommandError(f"--read-only: {directory}: {error.strerror or error}") from None
    return path


async def _serve(config: BrokerConfig, read_only: bool, console_port: int | None) -> int:
    stopping = _stop_signal()
    broker = Broker(
        config, data_directories(config)[0], read_only=read_only, connections_max=process.connections_allowed()
    )
    starting = asyncio.ensure_future(broker.start())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.wait((starting,))
        return 0
    starting.result()
    _calm_garbage_collector()
    _announce(config, broker, read_only)
    process.return_large_buffers()
    looking = asyncio.ensure_future(_warn_of_unknown_host(config, broker))
    with _console_beside(config, broker, console_port):
        await asyncio.wait((stopping, broker.failure), return_when=asyncio.FIRST_COMPLETED)
        looking.cancel()
        if broker.failure.done():
            await _stop(broker)
            raise CommandError(broker.failure.result(), FAILURE)
        return await _stop(broker)


def _console_beside(config: BrokerConfig, broker: Broker, port: int | None) -> AbstractContextManager[None]:
    """The web console as a child process, so that no page takes time from the broker; nothing if there is no port."""
    if port is None:
        return nullcontext()
    from ottla.cli.console_process import run_console

    listeners = sorted(config.endpoints.bound, key=lambda listener: listener.protocol != "PLAINTEXT")
    return run_console(address_of(listeners[0], broker.ports[listeners[0].name]), port)


async def _stop(broker: Broker) -> int:
    logger.info("stopping; a second signal ends the process at once")
    try:
        async with asyncio.timeout(STOP_DEADLINE_S + STOP_GRACE_S):
            await broker.stop(STOP_DEADLINE_S)
    except TimeoutError:
        print(
            f"ottla: the broker did not stop within {STOP_DEADLINE_S:.0f} s; the next start recovers its logs",
            file=sys.stderr,
        )
        _leave(FAILURE)
    return 0


def _stop_signal() -> asyncio.Future[None]:
    """A future that is done at the first signal to stop. The second signal ends the process, even if the loop hangs.

    Signals that come before the loop has handled the first count as one: timeout(1) sends its own twice at once.
    """
    loop = asyncio.get_running_loop()
    asked: asyncio.Future[None] = loop.create_future()

    def first() -> None:
        if asked.done():
            return
        asked.set_result(None)
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, second)

    def second(number: int, frame: FrameType | None) -> None:
        _leave(128 + number)

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, first)
    return asked


def _leave(status: int) -> NoReturn:
    """End the process without clean-up, which would wait for threads that may hang."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _announce(config: BrokerConfig, broker: Broker, read_only: bool) -> None:
    addresses = [address_of(listener, broker.ports[listener.name]) for listener in config.endpoints.bound]
    seconds = time.perf_counter() - STARTED_S
    data = ", ".join(data_directories(config))
    manner = "read-only " if read_only else ""
    line = f"ottla {__version__} ready on {', '.join(addresses)} ({manner}data {data}, {seconds:.2f} s)"
    if METRICS in broker.ports:
        line += f", metrics on http://{address_of(config.endpoints.bound[0], broker.ports[METRICS])}/metrics"
    print(line, flush=True)


async def _warn_of_unknown_host(config: BrokerConfig, broker: Broker) -> None:
    """Warn if the host at which other brokers look for this one has no address here: they hardly find one either.

    They would complain, and this broker, whose setting is wrong, would stay silent.
    """
    registered = broker.node.image.broker(broker.node.broker_id)
    listener = config.endpoints.inter_broker.name
    endpoint = None if registered is None else registered.endpoint(listener)
    if not config.zookeeper_connect or endpoint is None:
        return
    threads = Threads(1)
    if not await threads(has_address, endpoint.host):
        logger.warning(
            "this machine finds no address for %s, where other brokers are told to connect (advertised.listeners, %s)",
            endpoint.host,
            listener,
        )
    threads.close()  # after a cancellation the thread ends with the process: it may hang


def _calm_garbage_collector() -> None:
    """Exclude the objects of the start from garbage collection, because they live as long as the process."""
    gc.collect()
    gc.freeze()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        logger.warning("uvloop is not installed; the slower event loop of the standard library is used")
        return None
    return uvloop.new_event_loop


def _explain(error: Exception, config: BrokerConfig) -> str:
    """Why the broker failed, in one line that says what to do."""
    # Most brokers have neither a store nor a metrics port, and start sooner without this.
    from ottla.cluster.store import StoreError
    from ottla.observability.endpoint import PortTaken

    listeners = ", ".join(f"{listener.host or '*'}:{listener.port}" for listener in config.endpoints.bound)
    if isinstance(
        error, ConfigError | DamagedMetadata | DirectoryError | LogBehind | LogUnavailable | PortTaken | StoreError
    ):
        return str(error)
    if isinstance(error, KafkaError):
        return error.message or str(error)
    if isinstance(error, socket.gaierror):
        return f"cannot find the address of {listeners}: {error.strerror}"
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"another program already listens on {listeners}; choose another port with --port"
    if isinstance(error, OSError) and error.errno == errno.EADDRNOTAVAIL:
        return f"this machine has no address {listeners}; choose another with --host"
    if isinstance(error, PermissionError):
        return f"no permission for {error.filename or listeners}"
    if isinstance(error, OSError):
        return f"{error.filename or ', '.join(data_directories(config))}: {error.strerror or error}"
    return f"{type(error).__name__}: {error} (--log-level debug shows where)"
