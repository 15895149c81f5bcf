"""Listeners and connections: frames in, ordered answers out. It knows frames, not Kafka.

listeners.py   listening, and how a server ends        connection.py  one connection: order, closing
receiving.py   frames cut out of what arrives          traffic.py     limits and counters that connections share
sending.py     the one writer of a connection          outbox.py      what it still has to send, files included
"""

from ottla.server.listeners import Server, bound_sockets
from ottla.server.traffic import ServerSettings

__all__ = ["Server", "ServerSettings", "bound_sockets"]
