"""The archive of classes that a JVM of Spark starts with, and who writes it (class data sharing of Java).

A JVM that was told to writes an archive when it ends, of the classes that it has loaded. Until then it takes 8 s of CPU
more, because Java looks for the place of each class among all jars. So the first JVM of a machine, which may be a
container that is thrown away, does not write one; the second does.

A JVM that ends before its first job, because its app was refused, has loaded two thirds of the classes, and with its
archive a start would take 2.5 s of CPU longer for ever. So a JVM that has run a job leaves a mark, and an archive
without a mark is not used.

Apps of Streams share an archive, and some of them do without Spark's SQL, which is half of the classes. So the first
job of an app whose JVM writes the archive is one of SQL (`streams/running/driver.py`).

    spark-HASH-PROCESS.jsa     the archive. The hash stands for Java, the installation of Spark and the kind of program,
                               PROCESS is the Python process that has started the JVM
    spark-HASH-PROCESS.whole   the mark

A JVM that finds the archive missing or made for other jars loads its classes as ever.
"""

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from ottla.spark.java import java_environment, read_release

ARCHIVES_MAX: Final = 4
"""How many archives are kept: one for each Java, installation of PySpark and kind of program. Each has 70 to 160 MB."""
_ARCHIVE: Final = ".jsa"
_MARK: Final = ".whole"
_WRITE: Final = "-XX:ArchiveClassesAtExit="
_PROPERTY: Final = "-Dottla.class.archive"
"""The option with the archive that is, or might have been, written by a JVM."""


def make_archive_options(environment: Mapping[str, str], program: str) -> str:
    """Options for a JVM that reads the archive, or perhaps writes it when it ends. Empty if there is no place for
    one."""
    cache = environment.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    directory = Path(cache) / "ottla"
    if " " in str(directory):
        return ""  # Spark cuts the options at spaces
    name = f"spark-{_describe(environment, program)}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        found = [each for each in _list_archives(directory) if each.name.startswith(name) and _is_whole(each)]
        if found:
            return f"-XX:SharedArchiveFile={found[-1]} -Xlog:cds*=off"
        is_first = not any(directory.glob(f"{name}-*{_MARK}"))
        _make_room(directory)
    except OSError:
        return ""
    archive = directory / f"{name}-{os.getpid()}{_ARCHIVE}"
    named = f"{_PROPERTY}={archive}"
    return named if is_first else f"{named} {_WRITE}{archive} -Xlog:cds*=off"


def writes_archive(java_options: str) -> bool:
    """Whether a JVM with these options writes an archive when it ends."""
    return _WRITE in java_options


def mark_archive(java_options: str) -> None:
    """A job was run: if the JVM with these options writes an archive, it has what jobs need."""
    for option in java_options.split():
        name, _, archive = option.partition("=")
        if name == _PROPERTY:
            with suppress(OSError):  # the archive is not used, and another JVM writes one
                Path(archive).with_suffix(_MARK).touch()


def _describe(environment: Mapping[str, str], program: str) -> str:
    """A hash of what an archive is made for: a JVM refuses one of another Java, or of jars that were written since."""
    import pyspark

    java = {**environment, **java_environment(environment)}
    home = environment.get("SPARK_HOME") or os.path.dirname(pyspark.__file__)
    try:
        written_ns = os.stat(os.path.join(home, "jars")).st_mtime_ns
    except OSError:
        written_ns = 0
    made_for = "\n".join((program, java["JAVA_HOME"], read_release(java), pyspark.__version__, home, str(written_ns)))
    return hashlib.sha256(made_for.encode()).hexdigest()[:16]


def _list_archives(directory: Path) -> list[Path]:
    """The oldest first."""
    return sorted(directory.glob(f"spark-*{_ARCHIVE}"), key=lambda each: each.stat().st_mtime)


def _is_whole(archive: Path) -> bool:
    """Whether the JVM has run a job, and has written the archive to its end: the header comes last."""
    if not archive.with_suffix(_MARK).exists():
        return False
    with archive.open("rb") as file:
        return any(file.read(4))


def _make_room(directory: Path) -> None:
    """Remove archives without a mark, and the oldest ones, so that there are not too many with the one that is about to
    be written. A JVM that uses one of them keeps it until it ends. Another JVM may be about to write one that has its
    mark already."""
    marked = []
    for archive in _list_archives(directory):
        if archive.with_suffix(_MARK).exists():
            marked.append(archive)
        else:
            archive.unlink(missing_ok=True)
    for archive in marked[: max(0, len(marked) - ARCHIVES_MAX + 1)]:
        archive.unlink(missing_ok=True)
    marks = sorted(directory.glob(f"spark-*{_MARK}"), key=lambda each: each.stat().st_mtime)
    alone = [each for each in marks if not each.with_suffix(_ARCHIVE).exists()]
    for mark in alone[: max(0, len(alone) - ARCHIVES_MAX)]:
        mark.unlink(missing_ok=True)
