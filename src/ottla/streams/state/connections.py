"""Frames over a socket, for both sides of the protocol."""

import socket
from contextlib import suppress

from ottla.streams.state.protocol import LENGTH, Frame, ProtocolError, decode_frame


class FrameSocket:
    """A connected socket that sends and receives whole frames. OSError if the connection is lost or too slow."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._socket = connected

    def set_timeout(self, seconds: float | None) -> None:
        """How long a single read or write may take; None for as long as it takes."""
        self._socket.settimeout(seconds)

    def send(self, frame: bytes) -> None:
        """Sends a frame that `encode_frame` has made."""
        self._socket.sendall(frame)

    def receive(self, bytes_max: int) -> Frame:
        """The next frame. ProtocolError if it is larger than `bytes_max` or malformed."""
        (size,) = LENGTH.unpack(self._read(LENGTH.size))
        if size > bytes_max:
            raise ProtocolError(f"a message of {size} bytes is larger than the {bytes_max} bytes that are allowed")
        return decode_frame(self._read(size))

    def close(self) -> None:
        self._socket.close()

    def shut_down(self) -> None:
        """Ends the connection, also under a thread that is waiting for a frame."""
        with suppress(OSError):  # the other side was faster
            self._socket.shutdown(socket.SHUT_RDWR)

    def _read(self, size: int) -> bytearray:
        found = bytearray(size)
        with memoryview(found) as target:
            done = 0
            while done < size:
                count = self._socket.recv_into(target[done:])
                if not count:
                    raise ConnectionError("the connection was closed")
                done += count
        return found
