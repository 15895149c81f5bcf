"""Checks of the directory in which a broker on this machine keeps its data."""

import fcntl
import os
import shutil
from collections.abc import Iterator

from ottla.cli.doctor.finding import NOTE, OK, PROBLEM, Finding

FREE_MIN_BYTES = 1 << 30
FREE_MIN_SHARE = 0.05
MOUNTS = "/proc/mounts"
VERSIONS = ("0", "1")
LOCK, META = ".lock", "meta.properties"

_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "drvfs", "fuse.sshfs", "fuse.s3fs", "afs")
_GIGABYTE = 1 << 30


def check_data(directory: str, *, is_named: bool) -> Iterator[Finding]:
    path = os.path.abspath(os.path.expanduser(directory))
    if not os.path.isdir(path):
        level = PROBLEM if is_named else OK
        fix = "`ottla up --data` creates it; is the path right?" if is_named else ""
        yield Finding(level, "data", f"{path} does not exist" + ("" if is_named else " yet"), fix)
    else:
        yield from _check_permissions(path)
        yield from _check_meta(path)
        yield from _check_lock(path)
    nearest = find_existing(path)
    usage = shutil.disk_usage(nearest)
    yield check_space(nearest, usage.free, usage.total)
    yield check_file_system(nearest, find_file_system(nearest, _read_mounts()))


def find_existing(path: str) -> str:
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def check_space(path: str, free: int, total: int) -> Finding:
    text = f"{free / _GIGABYTE:.1f} of {total / _GIGABYTE:.1f} GB are free at {path}"
    if free < FREE_MIN_BYTES or free < total * FREE_MIN_SHARE:
        return Finding(
            PROBLEM, "disk", text, "make room, set retention.bytes or retention.ms, or move --data to a larger disk"
        )
    return Finding(OK, "disk", text)


def _read_mounts() -> str:
    try:
        with open(MOUNTS, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def find_file_system(path: str, mounts: str) -> str:
    """The type of the file system that the path is on; empty if the system does not say."""
    best, found = "", ""
    for line in mounts.splitlines():
        words = line.split()
        place = words[1].replace("\\040", " ") if len(words) > 2 else ""
        if place and (path == place or path.startswith(place.rstrip("/") + "/")) and len(place) >= len(best):
            best, found = place, words[2]
    return found


def check_file_system(path: str, kind: str) -> Finding:
    if kind in _REMOTE:
        fix = "keep --data on a local disk"
        return Finding(
            PROBLEM, "file system", f"{path} is on {kind}, which keeps neither locks nor fsync reliably", fix
        )
    if kind in ("tmpfs", "ramfs"):
        return Finding(NOTE, "file system", f"{path} is on {kind}: all records are lost when the machine stops")
    return Finding(OK, "file system", kind or "unknown")


def _check_permissions(path: str) -> Iterator[Finding]:
    user = os.environ.get("USER") or str(os.getuid())
    for place in (path, os.path.join(path, META)):
        if os.path.exists(place) and not os.access(place, os.R_OK | os.W_OK):
            yield Finding(
                PROBLEM, "data", f"user {user} may not read and write {place}", f"sudo chown -R {user} {path}"
            )
            return
    yield Finding(OK, "data", path)


def _check_meta(path: str) -> Iterator[Finding]:
    from ottla.config.properties import read_properties

    try:
        with open(os.path.join(path, META), encoding="utf-8") as file:
            found = read_properties(file.read())
    except FileNotFoundError:
        if any(not name.startswith(".") for name in os.listdir(path)):
            fix = "choose an empty directory, or the data directory of a broker"
            yield Finding(PROBLEM, "data", f"{path} has files, but no {META}: it is no broker's directory", fix)
        return
    except (OSError, ValueError) as error:
        yield Finding(
            PROBLEM, "data", f"{path}/{META} cannot be read: {error}", "ottla log verify looks into the files"
        )
        return
    if found.get("version") not in VERSIONS:
        fix = "it is from a newer version: install that version of Ottla or Kafka"
        yield Finding(
            PROBLEM, "data", f"{path}/{META} has version {found.get('version')!r}, and 0 and 1 are known", fix
        )


def _check_lock(path: str) -> Iterator[Finding]:
    try:
        descriptor = os.open(os.path.join(path, LOCK), os.O_RDONLY)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        yield Finding(OK, "data", f"a running broker uses {path}")
    finally:
        os.close(descriptor)
