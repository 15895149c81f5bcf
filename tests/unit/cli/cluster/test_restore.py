"""`ottla cluster restore`: a lost ZooKeeper is written again from what brokers keep, nothing newer is overwritten."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ottla.cli import main
from ottla.cli.cluster.restore import check_store
from ottla.cli.command_error import CommandError
from ottla.cluster import znodes
from ottla.cluster.local_copy import DIRECTORY, LocalCopy
from ottla.cluster.store import NotAllowed
from ottla.cluster.zookeeper import ZooKeeper
from ottla.storage.files import RealDisk
from ottla.system.clock import WallClock
from tests.patience import PATIENCE_S
from tests.unit.cluster.cluster_members import CLUSTER_ID, Member, count_up

T = TypeVar("T")


def offload(function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
    return asyncio.get_running_loop().run_in_executor(None, function, *args)


async def live(address: str, directory: Path, changes: int, cluster_id: str = CLUSTER_ID) -> Member:
    """One life of a broker that makes some changes and keeps its copy in `directory`."""
    member = Member(ZooKeeper(address, 4.0, PATIENCE_S), 1, cluster_id=cluster_id)
    directory.mkdir(exist_ok=True)
    copy = LocalCopy(RealDisk(), str(directory), offload, WallClock(), lambda: member.image)
    member.metadata.on_entry(copy.add)
    await member.join()
    for _ in range(changes):
        await member.metadata.change(count_up("n"))
    await member.leave()
    await copy.close()
    return member


def test_restore(zookeeper: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The newest of the given copies is written; the cluster goes on from there."""
    old, new, lost = tmp_path / "old", tmp_path / "new", f"{zookeeper}-lost"
    asyncio.run(live(lost, old, 1))
    member = asyncio.run(live(lost, new, 3))
    arguments = ["cluster", "restore", "--data", str(new), "--data", str(old), "--zookeeper", zookeeper]
    assert main([*arguments, "--dry-run"]) == 0
    assert f"from {new} would be written to {zookeeper}, which is at version 0" in capsys.readouterr().out
    assert main(arguments) == 0
    output = capsys.readouterr().out
    assert f"version {member.image.version} from {new} was written" in output
    again = asyncio.run(live(zookeeper, new, 1))
    assert again.image.features["n"] == 5
    assert again.epoch == member.image.version + 1
    expect_refusal(arguments, "keep what is there", capsys)


def expect_refusal(arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The command fails for this reason, also if it is only asked whether it would."""
    for more in ([], ["--dry-run"]):
        assert main([*arguments, *more]) == 1
        assert reason in capsys.readouterr().err


def test_another_cluster_is_not_overwritten(zookeeper: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # A wrong path is easily typed. The copy is newer than what is there.
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    asyncio.run(live(f"{zookeeper}-ours", ours, 3, "ours"))
    before = asyncio.run(live(zookeeper, theirs, 1, "theirs")).image
    arguments = ["cluster", "restore", "--data", str(ours), "--zookeeper", zookeeper]
    reason = f"ZooKeeper at {zookeeper} holds cluster theirs, and the copy is of cluster ours"
    expect_refusal(arguments, reason, capsys)
    assert asyncio.run(live(zookeeper, theirs, 1, "theirs")).image.version > before.version


def test_nobody_answers(tmp_path: Path, zookeeper: str, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(live(zookeeper, tmp_path / "copy", 1))
    settings = tmp_path / "server.properties"
    settings.write_text("zookeeper.connection.timeout.ms=200\n")
    arguments = ["cluster", "restore", "--data", str(tmp_path / "copy"), "--config", str(settings)]
    expect_refusal([*arguments, "--zookeeper", "127.0.0.1:1"], "cannot connect to ZooKeeper at 127.0.0.1:1", capsys)


def test_a_directory_may_be_named_from_where_one_is(
    zookeeper: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(live(zookeeper, tmp_path / "copy", 1))
    monkeypatch.chdir(tmp_path)
    lost = f"{zookeeper}-lost"
    for directory in ("copy", "./copy", "../" + tmp_path.name + "/copy"):
        assert main(["cluster", "restore", "--data", directory, "--zookeeper", lost, "--dry-run"]) == 0
        assert f"{directory}: version" in capsys.readouterr().out


def test_restore_with_the_credentials_of_the_brokers(zookeeper: str, tmp_path: Path) -> None:
    """With zookeeper.set.acl of their settings, what is written is theirs alone."""
    copy, settings = tmp_path / "copy", tmp_path / "server.properties"
    asyncio.run(live(f"{zookeeper}-lost", copy, 1))
    settings.write_text("node.id=1\nzookeeper.set.acl=true\nzookeeper.credentials=me:secret\n")
    arguments = ["cluster", "restore", "--data", str(copy), "--zookeeper", zookeeper]
    assert main([*arguments, "--config", str(settings)]) == 0

    async def look() -> None:
        stranger = await ZooKeeper(zookeeper, 4.0, PATIENCE_S).open(lambda state: None)
        for node in (znodes.HEAD, znodes.SNAPSHOT):
            with pytest.raises(NotAllowed):
                await stranger.get(node)
        await stranger.close()

    asyncio.run(look())


def test_a_directory_without_a_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "restore", "--data", str(tmp_path), "--zookeeper", "127.0.0.1:1"]) == 1
    assert "has no copy of the metadata of a cluster" in capsys.readouterr().err


def test_a_damaged_copy_may_be_the_newest(zookeeper: str, tmp_path: Path) -> None:
    # So the whole local cluster waits until somebody has decided about it. A broker that was never in a cluster has an
    # empty copy, which counts for nothing. While ZooKeeper has everything, a broker begins its damaged copy again.
    fresh, sound, damaged = (tmp_path / name for name in ("fresh", "sound", "damaged"))
    (fresh / DIRECTORY).mkdir(parents=True)
    kept = f"{zookeeper}-kept"
    asyncio.run(live(kept, sound, 1))
    shutil.copytree(sound, damaged)
    for file in (damaged / DIRECTORY).iterdir():
        file.write_bytes(b"\0" * 100 + file.read_bytes()[100:])
    brokers = [damaged, fresh, sound]
    check_store(brokers, kept, {}, restore=False)
    with pytest.raises(CommandError, match=f"may be the newest is damaged.*move {damaged}/{DIRECTORY} away"):
        check_store(brokers, zookeeper, {}, restore=True)
    check_store([fresh], zookeeper, {}, restore=False)
    check_store([fresh, sound], zookeeper, {}, restore=True)
    check_store(brokers, zookeeper, {}, restore=False)
