"""What `ottla up` does with SIGTERM, SIGSTOP and SIGCONT while clients are at work."""

import signal
from pathlib import Path

from tests.clients.child import ottla_up
from tests.clients.sender import Sender, read_numbers

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


def test_a_stop_under_load_loses_nothing_and_needs_no_recovery(tmp_path: Path) -> None:
    # Status 0 says that the broker ended within its deadline. Each acknowledged record is there once. The
    # clean-shutdown marker is written and used: no index is rebuilt.
    with ottla_up(tmp_path / "data") as broker:
        once = Sender(broker.bootstrap, "once", idempotent=True)
        at_least_once = Sender(broker.bootstrap, "at-least-once", idempotent=False)
        for _ in range(2):
            at_least_once.send(100)
            once.work(500)
            assert broker.terminate() == 0
            assert (broker.data / CLEAN_SHUTDOWN).exists()
            indexes = {path: path.stat().st_mtime_ns for path in broker.data.glob("*/*.index")}
            broker.start()
            assert not (broker.data / CLEAN_SHUTDOWN).exists()
            assert {path: path.stat().st_mtime_ns for path in indexes} == indexes
        once.finish()
        at_least_once.finish()
        assert read_numbers(broker.bootstrap, "once") == sorted(once.acknowledged.items())
        found = read_numbers(broker.bootstrap, "at-least-once")
        assert list(dict.fromkeys(number for number, _ in found)) == list(range(at_least_once.sent))
        assert broker.log.read_text().count("WARNING") == 0, broker.log.read_text()


def test_a_frozen_broker_continues_with_its_clients(tmp_path: Path) -> None:
    # The broker is stopped with SIGSTOP for longer than the client waits for an answer, then continued with SIGCONT.
    # The client has retried meanwhile, and the broker, which finds both copies in its sockets, keeps one.
    with ottla_up(tmp_path / "data") as broker:
        sender = Sender(broker.bootstrap, "frozen", idempotent=True, request_timeout_ms=1000)
        sender.work(500)
        broker.signal(signal.SIGSTOP)
        sender.troubles.clear()
        sender.work_until(lambda: bool(sender.troubles))
        broker.signal(signal.SIGCONT)
        sender.finish()
        assert read_numbers(broker.bootstrap, "frozen") == sorted(sender.acknowledged.items())
        assert [number for number, _ in read_numbers(broker.bootstrap, "frozen")] == list(range(sender.sent))
