"""Answers from files: the same bytes however they are sent, and no resource is left behind however the send ends."""

import asyncio
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from ottla.broker.call import Answer, Client, Frame, Part
from ottla.server import ServerSettings, outbox
from ottla.storage.files import FileSlice
from tests.unit.server.serving import (
    DescriptorFile,
    MemoryFile,
    connected,
    on_both_loops,
    open_descriptors,
    run,
    serving,
    until,
)

SIZE = 3_000_000
CONTENT = Random(1).randbytes(SIZE)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[DescriptorFile]:
    path = tmp_path / "segment.log"
    path.write_bytes(CONTENT)
    file = DescriptorFile(path)
    yield file
    assert file.pins == 0
    file.close()


def random_answer(random: Random, file: DescriptorFile) -> tuple[list[Part], bytes]:
    """Random parts and their bytes: heads in memory between file ranges of every size that is treated differently."""
    parts: list[Part] = []
    content = bytearray()
    for _ in range(random.randint(1, 6)):
        head = random.randbytes(random.choice([0, 1, 40, 5000]))
        length = random.choice([0, 1, 4000, random.randint(1, 40_000), random.randint(30_000, 700_000)])
        position = random.randint(0, SIZE - length)
        heads: list[Part] = [head, bytearray(head), memoryview(head)]
        parts += [random.choice(heads), FileSlice(file, position, length)]
        content += head + CONTENT[position : position + length]
    return parts, bytes(content)


@on_both_loops
@pytest.mark.parametrize("kind", [DescriptorFile, MemoryFile])
def test_a_client_receives_the_bytes_of_the_file(loop: str, kind: type[DescriptorFile], tmp_path: Path) -> None:
    # Parts and sizes are random, requests are pipelined, some answers are late, and clients read slowly or fast.
    (tmp_path / "segment.log").write_bytes(CONTENT)
    file = kind(tmp_path / "segment.log")
    random = Random(loop)
    answers = [random_answer(random, file) for _ in range(120)]

    def dispatch(client: Client, frame: Frame) -> Answer | asyncio.Future[Answer]:
        answer: Answer = answers[int(bytes(frame))][0]
        if random.random() < 0.7:
            return answer
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, answer)
        return future

    async def main() -> None:
        async with serving(dispatch) as (_, port):
            clients = [await connected(port) for _ in range(2)]
            for client in clients:
                client.write_frame(*(str(number).encode() for number in range(len(answers))))
            for number, (_, content) in enumerate(answers):
                for client in clients:
                    if number % 10 == 0:
                        client.transport.pause_reading()
                        await asyncio.sleep(0.001)
                        client.transport.resume_reading()
                    assert await client.read_frame() == content

    run(loop, main())
    assert file.pins == 0
    file.close()


@on_both_loops
def test_a_file_that_is_deleted_while_it_is_sent_arrives_whole(loop: str, file: DescriptorFile) -> None:
    # The client starts to read only after the file has been closed and unlinked.
    async def main() -> None:
        async with serving(lambda client, frame: [FileSlice(file, 0, SIZE)] * 4) as (server, port):
            client = await connected(port)
            client.transport.pause_reading()
            client.write_frame(b"fetch")
            await until(lambda: server.traffic.bytes_out > 100_000)
            os.unlink(file.path)
            file.close()
            assert file.pins > 0
            client.transport.resume_reading()
            assert await client.read_frame() == CONTENT * 4
            await until(lambda: file.pins == 0)
            with pytest.raises(OSError) as error:
                os.fstat(file.descriptor)
            assert error.value.errno == errno.EBADF

    run(loop, main())


@on_both_loops
@pytest.mark.parametrize("way", ["reset", "stop"])
def test_a_connection_that_ends_in_mid_send_leaves_no_descriptor_and_no_pin(
    loop: str, way: str, file: DescriptorFile
) -> None:
    # The client or the server ends the connection. The duplicate of the socket and the file are released.
    async def main() -> None:
        async with serving(lambda client, frame: [FileSlice(file, 0, SIZE)] * 10) as (server, port):
            before = open_descriptors()
            clients = [await connected(port) for _ in range(20)]
            for client in clients:
                client.transport.pause_reading()
                client.write_frame(b"fetch")
            await until(lambda: server.traffic.requests == 20 and server.traffic.bytes_out > 2_000_000)
            assert file.pins > 0
            if way == "stop":
                await server.stop(0)
            for client in clients:
                client.transport.abort()
            await until(lambda: not server.connections)
            assert file.pins == 0
            await until(lambda: open_descriptors() <= before)

    run(loop, main())


@on_both_loops
def test_cold_pages_are_read_by_a_thread_first(
    loop: str, file: DescriptorFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The page cache is empty, so every range is read in a thread first and then sent.
    ranges: list[Part] = [FileSlice(file, 0, SIZE), FileSlice(file, 5, 100)]
    warmed: list[int] = []
    warm = outbox.Range.warm

    def counted_warm(part: outbox.Range) -> None:
        warmed.append(part.position)
        warm(part)

    def cold(*arguments: object) -> int:
        raise BlockingIOError

    async def main() -> None:
        async with serving(lambda client, frame: [b"head", *ranges]) as (_, port):
            client = await connected(port)
            client.write_frame(b"fetch")
            assert await client.read_frame() == b"head" + CONTENT + CONTENT[5:105]
            assert warmed == [0, 2**20, 2 * 2**20, 5]

    monkeypatch.setattr(outbox.Range, "warm", counted_warm)
    monkeypatch.setattr(os, "preadv", cold)
    run(loop, main())


@on_both_loops
def test_a_file_system_that_cannot_report_cold_pages_is_supported(
    loop: str, file: DescriptorFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The system refuses RWF_NOWAIT, and files are sent all the same.
    async def main() -> None:
        async with serving(lambda client, frame: [FileSlice(file, 0, SIZE), FileSlice(file, 5, 100)]) as (_, port):
            client = await connected(port)
            client.write_frame(b"fetch")
            assert await client.read_frame() == CONTENT + CONTENT[5:105]

    monkeypatch.setattr(os, "preadv", refuse)
    run(loop, main())


def refuse(*arguments: object) -> int:
    raise OSError(errno.EOPNOTSUPP, "not supported")


@on_both_loops
@pytest.mark.parametrize("length", [1000, 2_000_000])
@pytest.mark.parametrize("probed", [True, False])
def test_a_file_that_is_shorter_than_promised_ends_the_connection(
    loop: str,
    length: int,
    probed: bool,
    file: DescriptorFile,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The size is already sent, so there is no other way. One warning names the file.
    if not probed:
        monkeypatch.setattr(os, "preadv", refuse)

    async def main() -> None:
        async with serving(lambda client, frame: [b"head", FileSlice(file, SIZE - 500, length)]) as (_, port):
            client = await connected(port)
            client.write_frame(b"fetch")
            with pytest.raises(EOFError):
                await client.read_frame()

    run(loop, main())
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "segment.log" in caplog.text


@on_both_loops
def test_a_slow_reader_of_large_files_lets_others_have_their_turn(loop: str, file: DescriptorFile) -> None:
    # Between two turns of a connection that sends hundreds of megabytes, other clients are answered.
    def dispatch(client: Client, frame: Frame) -> Answer:
        return [bytes(frame)] if bytes(frame) == b"ping" else [FileSlice(file, 0, SIZE)] * 50

    async def main() -> None:
        async with serving(dispatch, ServerSettings(unsent_bytes_max=1)) as (server, port):
            heavy, light = await connected(port), await connected(port)
            heavy.write_frame(b"fetch")
            pings = 0
            reading = asyncio.create_task(heavy.read_frame())
            while not reading.done():
                light.write_frame(b"ping")
                assert await light.read_frame() == b"ping"
                pings += 1
            assert len(await reading) == 50 * SIZE
            assert pings > 20
            assert server.traffic.unsent_memory == 0

    run(loop, main())


def test_without_a_spare_descriptor_a_full_socket_is_retried(
    file: DescriptorFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The socket cannot be duplicated for waiting, yet everything arrives.
    def none_left(descriptor: int) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    async def main() -> None:
        async with serving(lambda client, frame: [b"head", FileSlice(file, 0, SIZE)] * 5) as (server, port):
            client = await connected(port)
            client.transport.pause_reading()
            client.write_frame(b"fetch")
            await until(lambda: server.traffic.bytes_out)
            client.transport.resume_reading()
            assert await client.read_frame() == (b"head" + CONTENT) * 5

    monkeypatch.setattr(os, "dup", none_left)
    run("uvloop", main())
