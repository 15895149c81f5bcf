"""Whether a member of a cluster tells the others, when it registers, that it still has everything."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.lifecycle import find_intact_epoch

EPOCH = 7


def directory(*, clean: int = -1, killed: int = -1, is_new: bool = False, failure: str | None = None) -> Any:
    """A data directory that was closed in epoch `clean`, or whose broker was killed in epoch `killed`."""
    return SimpleNamespace(
        was_clean=clean >= 0,
        broker_epoch=max(clean, killed),
        killed_at=killed,
        identity=None if is_new else object(),
        failure=failure,
    )


@pytest.mark.parametrize(
    ("directories", "epoch"),
    [
        ([directory(clean=EPOCH), directory(clean=EPOCH)], EPOCH),
        ([directory(killed=EPOCH), directory(clean=EPOCH)], EPOCH),
        ([directory(clean=EPOCH), directory(is_new=True), directory(failure="EIO")], EPOCH),
        ([directory(clean=EPOCH), directory(clean=EPOCH - 2)], None),
        ([directory(clean=EPOCH), directory()], None),
        ([directory()], None),
        ([directory(is_new=True)], None),
    ],
)
def test_every_directory_must_be_from_the_end_of_the_same_run(directories: list[Any], epoch: int | None) -> None:
    """One that was restored from a backup lacks what the broker has acknowledged since."""
    assert find_intact_epoch(cast(Any, directories)) == epoch
