"""Apicurio Registry for tests: a schema registry of others, which has the API of Confluent's under /apis/ccompat/v7.

It runs where there is Java 17, and its files: in the project's cache, or brought there by Maven within a few minutes,
once. Otherwise the tests that need it are skipped, with the reason.
"""

import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from ottla.cli.ports import pick_port
from tests.needs import require_program, skip_without
from tests.patience import PATIENCE_S

VERSION = "3.0.9"
CACHE = Path(__file__).parents[1] / ".cache"
FETCH_S = 300


@contextmanager
def run_apicurio() -> Iterator[str]:
    """The address of a registry without schemas, which keeps them in memory."""
    java = require_program("java")
    directory = find_files()
    port = pick_port()
    command = [java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512M", "-Dquarkus.http.host=127.0.0.1"]
    command += [f"-Dquarkus.http.port={port}", "-jar", f"apicurio-registry-app-{VERSION}-runner.jar"]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=subprocess.STDOUT)
        address = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not _answers(f"{address}/subjects"):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise AssertionError(log.read()[-5000:])
                time.sleep(0.2)
            yield address
        finally:
            process.terminate()
            process.wait()


def find_files() -> Path:
    """The directory with the server, unpacked."""
    complete = CACHE / f"apicurio-registry-{VERSION}"
    if complete.is_dir():
        return complete
    maven = require_program("mvn")
    CACHE.mkdir(exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix="apicurio-", dir=CACHE))
    try:
        artifact = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
        command = [maven, "--batch-mode", "--quiet", "dependency:copy", f"-Dartifact={artifact}"]
        try:
            subprocess.run(
                [*command, f"-DoutputDirectory={partial}"],
                cwd=partial,
                capture_output=True,
                timeout=FETCH_S,
                check=True,
            )
        except (subprocess.SubprocessError, OSError):
            skip_without("Apicurio Registry", "Maven cannot download it")
        (archive,) = partial.glob("*.tar.gz")
        unpacked = partial / "unpacked"
        with tarfile.open(archive) as packed:
            packed.extractall(unpacked, filter="data")
        try:
            os.rename(unpacked, complete)
        except OSError:
            if not complete.is_dir():  # otherwise another process was faster
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return complete


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=PATIENCE_S) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False
