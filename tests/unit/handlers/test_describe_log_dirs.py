"""DescribeLogDirs and a disk that does not answer."""

import asyncio
import errno
from random import Random

from ottla.errors import ErrorCode
from ottla.handlers import describe_log_dirs
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.simulation.disk import VOLUME_BYTES, SimulatedDisk
from tests.unit.handlers.one_broker import DIRECTORY, call, filled


def test_a_directory_that_cannot_be_read() -> None:
    """The directory has its own error code in the answer. When the disk works again, it is described."""

    async def run() -> None:
        disk = SimulatedDisk(Random(1))
        broker = await filled(disk)
        disk.fail("space", errno.EIO)
        (bad,) = describe_log_dirs.handle(broker.node, call(DescribeLogDirsRequest())).results
        assert (bad.error_code, bad.log_dir, bad.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, DIRECTORY, [])
        (good,) = describe_log_dirs.handle(broker.node, call(DescribeLogDirsRequest())).results
        assert (good.error_code, good.total_bytes) == (0, VOLUME_BYTES)
        assert [topic.name for topic in good.topics] == ["orders"]
        broker.abort()

    asyncio.run(run())
