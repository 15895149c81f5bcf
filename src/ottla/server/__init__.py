"""Listeners and connections: frames in, answers out in the same order. The server knows frames, not Kafka.

listeners.py   listens on addresses, and stops gracefully
connection.py  one connection: the fast path, order of answers, closing
entrance.py    the entrance of a listener with TLS or SASL, and the guard of a client that has to authenticate
handshakes.py  accepts connections with TLS, limits their handshakes, and has costly steps done in a thread
hellos.py      the first message of a handshake, and the turns in which it is answered
sending.py     sends the outbox of a connection: writev, sendfile, or the transport
outbox.py      answers that a connection still has to send, ranges of files included
traffic.py     limits, counters and memory that all connections share
admission.py   limits on new connections: how many, per address, per second
"""

from ottla.server.listeners import Server, bind_sockets
from ottla.server.traffic import ServerSettings

__all__ = ["Server", "ServerSettings", "bind_sockets"]
