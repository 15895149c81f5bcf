"""A partition directory that belongs to no topic of the metadata: it is put aside and kept."""

import shutil
from pathlib import Path

from ottla.testing import LocalBroker
from ottla.testing import broker as local_broker
from tests.scenarios.client_calls import append, connect, read_all_values

TOPIC = "orders"


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_directory_that_the_metadata_does_not_know_is_renamed_and_kept(ottla_broker: LocalBroker) -> None:
    # The directory is that of another broker's topic and has records. The broker's own topic is served as before.
    with local_broker() as other:
        other.create_topic("foreign")
        with connect(other) as client:
            append(client, "foreign", b"worth keeping")
        other.stop()
        foreign = Path(other.directory) / "foreign-0"
        contents = files(foreign)
        ottla_broker.create_topic(TOPIC)
        with connect(ottla_broker) as client:
            append(client, TOPIC, b"one")
        ottla_broker.stop()
        shutil.copytree(foreign, Path(ottla_broker.directory) / "foreign-0")
    ottla_broker.restart()
    with connect(ottla_broker) as client:
        assert read_all_values(client, TOPIC) == [b"one"]
    (stray,) = Path(ottla_broker.directory).glob("foreign-0.*-stray")
    assert not (Path(ottla_broker.directory) / "foreign-0").exists()
    assert files(stray).items() >= contents.items()
