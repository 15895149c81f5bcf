"""What makes a session for small jobs start sooner: options of the JVM, and a first job before it is needed.

A JVM of Spark spends most of its first seconds on loading classes and on compiling them to machine code.

- Classes come from an archive (class data sharing) that the first JVM of this machine writes when it ends. A JVM that
  finds the archive missing, half written or made for other jars loads its classes as ever.
- Code must be ten times as hot as usual before the second compiler takes it. Jobs of an app run nearly all of their
  time in Python, and the loops over rows that remain reach the limit within a second.

Measured on two cores: session and first job take 8.9 s of CPU instead of 15.4 s (12.0 s without the archive).
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.java import find_version, java_environment
from ottla.spark.jobs import REPORT, JobFailed, Jobs, to_report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ARCHIVES_MAX: Final = 4
"""How many archives are kept: one for each Java, installation of PySpark and kind of program. Each has 70 to 160 MB."""
SELF_MADE_ARCHIVE_VERSION: Final = 19
"""Since this version of Java one option makes, checks and renews the archive."""
COMPILER: Final = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
    " -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)

SAME_ADDRESS: Final = "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"
"""Newer Javas map the archive to an address of chance, and write to most of its pages then: 1 s of CPU at the start and
80 MB that no other process shares."""


def make_java_options(environment: Mapping[str, str], program: str) -> str:
    """Options for `spark.driver.extraJavaOptions`. Programs that load other classes have archives of their own."""
    import pyspark

    java = {**environment, **java_environment(environment)}
    version = find_version(java)
    made_for = "\n".join((program, java["JAVA_HOME"], str(version), pyspark.__version__, pyspark.__file__))
    cache = environment.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    directory = Path(cache) / "ottla"
    archive = directory / f"spark-{hashlib.sha256(made_for.encode()).hexdigest()[:16]}.jsa"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not archive.exists():
            _make_room(directory)
    except OSError:
        return COMPILER
    if " " in str(archive):
        return COMPILER  # Spark cuts the options at spaces
    if version >= SELF_MADE_ARCHIVE_VERSION:
        sharing = f"-XX:+AutoCreateSharedArchive -XX:SharedArchiveFile={archive}"
    else:
        sharing = f"-XX:{'SharedArchiveFile' if archive.exists() else 'ArchiveClassesAtExit'}={archive}"
    return f"{sharing} {SAME_ADDRESS} -Xlog:cds*=off {COMPILER}"


def _make_room(directory: Path) -> None:
    """Remove the oldest archives, so that there are not too many with the one that is about to be written. A JVM that
    uses one of them keeps it until it ends."""
    archives = sorted(directory.glob("spark-*.jsa"), key=lambda each: each.stat().st_mtime)
    for old in archives[: max(0, len(archives) - ARCHIVES_MAX + 1)]:
        old.unlink(missing_ok=True)


def warm_up(spark: "SparkSession") -> None:
    """Run a job with the steps that jobs have: it starts Python workers, and the JVM loads what the next jobs need."""
    try:
        Jobs(spark, _add_steps).run([None])
    except JobFailed:
        return  # the first real job says why


def _add_steps(frame: "DataFrame") -> "DataFrame":
    return frame.mapInArrow(_pass_on, "id long").filter("id >= 0").mapInArrow(_report, REPORT)


def _pass_on(batches: Iterable[Any]) -> Iterator[Any]:
    yield from batches


def _report(batches: Iterable[Any]) -> Iterator[Any]:
    for _ in batches:
        yield to_report([])
