"""`ottla cluster restore`: writes the metadata of a cluster into ZooKeeper again, from the copy of a broker.

`ottla cluster up --restore` does the same for a ZooKeeper that runs only together with the brokers.
"""

import argparse
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.cli.cluster.actions import Actions, add_action
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.output import counted

if TYPE_CHECKING:
    from ottla.cluster.image import Image
    from ottla.cluster.store import Store
    from ottla.system.threads import Offload

T = TypeVar("T")

WITHOUT_A_FILE = {"zookeeper.session.timeout.ms": "10000", "zookeeper.connection.timeout.ms": "15000"}


def add_actions(actions: Actions) -> None:
    restore = add_action(
        actions, "restore", "write the metadata into an emptied or outdated ZooKeeper again", _restore, client=False
    )
    restore.add_argument(
        "--data",
        action="append",
        required=True,
        metavar="DIR",
        help="the first data directory of a broker; may be repeated: the newest copy counts",
    )
    restore.add_argument("--zookeeper", required=True, metavar="HOST:PORT[,...][/PATH]", help="as for `ottla up`")
    restore.add_argument(
        "--config", metavar="FILE", help="settings of a broker, which have its TLS and credentials for ZooKeeper"
    )
    restore.add_argument("--dry-run", action="store_true", help="check everything and write nothing")


def _restore(options: argparse.Namespace) -> int:
    from ottla.cli.settings import read_settings_file
    from ottla.cluster.restore import check_restore, restore_store

    given = WITHOUT_A_FILE if options.config is None else read_settings_file(options.config)
    copies = []
    for directory in options.data:
        image = _read_copy(directory)
        copies.append((directory, image))
        topics = counted(len(image.topics_by_name), "topic")
        print(f"{directory}: version {image.version} of cluster {image.cluster_id}, {topics}")
    directory, image = _choose_newest(copies)
    store, copy = _find_store(given, options.zookeeper), f"version {image.version} from {directory}"
    if options.dry_run:
        before = _ask(check_restore, store, image)
        print(f"{copy} would be written to {options.zookeeper}, which is at version {before}")
        return 0
    before = _ask(restore_store, store, image)
    print(f"{copy} was written to {options.zookeeper}, which was at version {before}")
    print("start the brokers; one whose copy is newer refuses to start, and its copy should have been used")
    return 0


def check_store(brokers: Iterable[Path], zookeeper: str, settings: Mapping[str, str], *, restore: bool) -> None:
    """See to it that a ZooKeeper has everything that brokers have applied, before `ottla cluster up` starts them.

    One that was lost is restored if the user wants it, else CommandError. Brokers refuse to follow it, except for one
    whose own directory is new: that one would found another cluster there. `brokers` are the data directories of all
    brokers that the cluster has had.
    """
    from ottla.cluster.local_copy import DIRECTORY
    from ottla.cluster.restore import read_version, restore_store

    sources = [str(each) for each in brokers if (each / DIRECTORY).is_dir()]
    if not sources:
        return
    store = _find_store({**WITHOUT_A_FILE, **settings}, zookeeper)
    version = _run(read_version(store))
    found = [(source, _find_copy(source, is_needed=version == 0)) for source in sources]
    copies = [(source, image) for source, image in found if image is not None]
    if not copies:
        return
    source, image = _choose_newest(copies)
    if version >= image.version:
        return
    if not restore:
        state = f"ends at version {version} of the metadata" if version else "is empty"
        raise CommandError(
            f"ZooKeeper at {zookeeper} {state}, and {source} has version {image.version}. If its data is lost, "
            f"--restore writes it again from the newest copy of a broker; if the brokers use another ZooKeeper, name "
            f"it with --zookeeper"
        )
    _ask(restore_store, store, image)
    topics = counted(len(image.topics_by_name), "topic")
    print(f"ZooKeeper was restored from {source} (version {image.version}, {topics})", flush=True)


def _find_copy(directory: str, *, is_needed: bool) -> "Image | None":
    """The copy of a broker, None if it has none. A damaged one may be the newest: CommandError if it is needed, while
    otherwise its broker begins it again."""
    from ottla.cluster.local_copy import DIRECTORY, NoCopy

    try:
        return _read_copy(directory)
    except CommandError as error:
        if is_needed and not isinstance(error.__cause__, NoCopy):
            raise CommandError(
                f"ZooKeeper is empty, and a copy of its metadata that may be the newest is damaged: {error}. If one of "
                f"another broker shall count, move {directory}/{DIRECTORY} away"
            ) from None
        return None


def _read_copy(directory: str) -> "Image":
    from ottla.cluster.local_copy import read_copy
    from ottla.cluster.metadata_files import DamagedMetadata
    from ottla.storage.files import RealDisk
    from ottla.storage.overlay import OverlayDisk

    try:
        return read_copy(OverlayDisk(RealDisk()), directory)
    except DamagedMetadata as error:
        raise CommandError(str(error)) from error


def _choose_newest(copies: list[tuple[str, "Image"]]) -> tuple[str, "Image"]:
    """The copy with the highest version and its directory. CommandError if they are not of one cluster."""
    clusters = sorted({image.cluster_id or "" for _, image in copies})
    if len(clusters) > 1:
        raise CommandError(f"these are copies of {len(clusters)} clusters: {', '.join(clusters)}")
    return max(copies, key=lambda copy: (copy[1].version, copy[0]))


def _find_store(settings: Mapping[str, str], zookeeper: str) -> "Store":
    from ottla.cluster.zookeeper import ZooKeeper
    from ottla.config import BrokerConfig, ConfigError

    try:
        return ZooKeeper.of(BrokerConfig.of({**settings, "zookeeper.connect": zookeeper}))
    except ConfigError as error:
        raise CommandError(str(error), USAGE_ERROR) from None


def _ask(
    function: "Callable[[Store, Image, Random, Offload], Coroutine[Any, Any, T]]", store: "Store", image: "Image"
) -> T:
    """Call `check_restore` or `restore_store`."""
    from ottla.system.threads import Threads

    threads = Threads(1)
    try:
        return _run(function(store, image, Random(), threads))
    finally:
        threads.close()


def _run(asking: Coroutine[Any, Any, T]) -> T:
    import asyncio

    from ottla.cluster.store import StoreError

    try:
        return asyncio.run(asking)
    except StoreError as error:
        raise CommandError(str(error)) from None
