"""A free port for a server that cannot choose one itself, such as ZooKeeper."""

import random
import socket

HOST = "127.0.0.1"
FIRST, LAST = 20_000, 32_767
"""Below the ports that the kernel gives to outgoing connections (from 32768 on Linux, higher elsewhere). A port of that
range is easily taken by some connection in the second that a Java program needs to start."""


def is_free(port: int) -> bool:
    """Whether a server can listen on the port. What is left of closed connections of an earlier one does not matter."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError):  # overflow: no port has this number
            return False
        return True


def pick_port() -> int:
    """A port that is free now. Chosen at random, so that two callers at the same time hardly get the same."""
    while True:
        port = random.randint(FIRST, LAST)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
