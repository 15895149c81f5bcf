"""A free port for a server that cannot choose one itself, such as ZooKeeper."""

import random
import socket

HOST = "127.0.0.1"
FIRST, LAST = 20_000, 32_767
"""Below the ports that the kernel gives to outgoing connections (from 32768 on Linux, higher elsewhere). A port of that
range is easily taken by some connection in the second that a Java program needs to start."""


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
