"""The exception for bytes from the network that do not follow their schema."""


class Malformed(Exception):
    """The bytes break the protocol: nothing of the message can be used, and the connection is closed."""
