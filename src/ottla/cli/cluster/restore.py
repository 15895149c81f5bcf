"""`ottla cluster restore`: writes the metadata of a cluster into ZooKeeper again, from the copy of a broker."""

import argparse

from ottla.cli.cluster.actions import Actions, add_action
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.output import counted

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
    restore.add_argument("--dry-run", action="store_true", help="only show which copy would be written")


def _restore(options: argparse.Namespace) -> int:
    import asyncio

    from ottla.broker.member import find_zookeeper
    from ottla.cli.settings import read_settings_file
    from ottla.cluster.local_copy import read_copy, restore_store
    from ottla.cluster.metadata_files import DamagedMetadata
    from ottla.cluster.store import StoreError
    from ottla.config import BrokerConfig, ConfigError
    from ottla.storage.files import RealDisk
    from ottla.storage.overlay import OverlayDisk

    given = WITHOUT_A_FILE if options.config is None else read_settings_file(options.config)
    copies = []
    for directory in options.data:
        try:
            image = read_copy(OverlayDisk(RealDisk()), str(directory))
        except DamagedMetadata as error:
            raise CommandError(str(error)) from None
        copies.append((image.version, str(directory), image))
        topics = counted(len(image.topics_by_name), "topic")
        print(f"{directory}: version {image.version} of cluster {image.cluster_id}, {topics}")
    clusters = sorted({image.cluster_id or "" for _, _, image in copies})
    if len(clusters) > 1:
        raise CommandError(f"these are copies of {len(clusters)} clusters: {', '.join(clusters)}")
    version, directory, image = max(copies, key=lambda copy: copy[:2])
    if options.dry_run:
        print(f"version {version} from {directory} would be written to {options.zookeeper}")
        return 0
    try:
        store = find_zookeeper(BrokerConfig.of({**given, "zookeeper.connect": options.zookeeper}))
        before = asyncio.run(restore_store(store, image))
    except ConfigError as error:
        raise CommandError(str(error), USAGE_ERROR) from None
    except StoreError as error:
        raise CommandError(str(error)) from None
    print(f"version {version} from {directory} was written to {options.zookeeper}, which was at version {before}")
    print("start the brokers; one whose copy is newer refuses to start, and its copy should have been used")
    return 0
