"""The console as a process: beside a broker, and in front of others with a token."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psutil
import pytest

from ottla.testing import LocalBroker
from tests.patience import PATIENCE_S

OTTLA = [sys.executable, "-m", "ottla"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")}


def read_until(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(pattern, line):
            return found
    raise AssertionError(f"the process ended without {pattern}")


def test_beside_a_broker_it_ends_with_the_broker(tmp_path: Path) -> None:
    # Also when the broker is killed, and then the console must notice by itself.
    command = [*OTTLA, "up", "--port", "0", "--data", str(tmp_path), "--console", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as broker:
        try:
            url = read_until(broker, r"console on (http://localhost:\d+/)")[1]
            with urlopen(url, timeout=PATIENCE_S) as page:
                assert "<h1>Cluster</h1>" in page.read().decode()
            (console,) = psutil.Process(broker.pid).children()
        finally:
            broker.kill()
    assert console.wait(PATIENCE_S) in (0, -signal.SIGTERM, None)


def test_elsewhere_it_prints_a_token(broker: LocalBroker) -> None:
    command = [*OTTLA, "console", "-b", broker.bootstrap, "--host", "0.0.0.0", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as console:
        try:
            found = read_until(console, r"console on (http://localhost:\d+/) \(token (\S+)\)")
            headers = {"Authorization": f"Bearer {found[2]}"}
            with urlopen(Request(found[1] + "topics", headers=headers), timeout=PATIENCE_S) as page:
                assert page.status == 200
            with pytest.raises(HTTPError) as refused:
                urlopen(found[1] + "topics", timeout=PATIENCE_S)
            with refused.value:
                assert refused.value.code == 401
        finally:
            console.terminate()


def test_a_broker_alone_does_not_load_it() -> None:
    program = (
        "import sys; from ottla.cli import command_parser; import ottla.cli.broker_process, ottla.cli.client;"
        "command_parser({'up', 'topic'});"
        "print([name for name in sys.modules if name.startswith(('ottla.console', 'starlette', 'jinja2', 'uvicorn'))])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
