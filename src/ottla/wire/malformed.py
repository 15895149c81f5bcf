"""The one exception for bytes from the network that are not what their schema says."""


class Malformed(Exception):
    """The bytes break the protocol: nothing of the message can be used, and the connection is closed."""
