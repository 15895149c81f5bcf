"""What can be wrong with an app, as one line for its author."""


class StreamsError(Exception):
    """The base of all errors of `ottla.streams`. The message is one line."""


class TopologyError(StreamsError, ValueError):
    """A topology that cannot work. Raised where it is built; the message names the operator and the remedy."""


class IncompatibleTopology(StreamsError):
    """The app was started before with another topology, schema or number of partitions, and its state does not fit."""


class FencedApp(StreamsError):
    """Another copy of the app has taken over. This one must end."""


class FunctionFailed(StreamsError):
    """A function of the user raised an exception for a record, and the app is set to fail then."""
