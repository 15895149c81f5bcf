"""Which cluster an operation of `ottla.spark` means if its options name none: that of the command line.

Only options that the driver's own process completes get these defaults. format("ottla") itself does not have them:
Spark evaluates its options in processes whose environment may be another one.
"""

from collections.abc import Mapping

from ottla.client.defaults import BOOTSTRAP, find_default_connection
from pyspark_ottla.options import KAFKA_PREFIX


def complete_cluster(bootstrap: str | None, options: Mapping[str, str] | None) -> dict[str, str]:
    """The options with names in lower case, and with an address: their own, this one, or else that of $OTTLA_BOOTSTRAP
    or of the profile in use, with its login. ValueError if $OTTLA_PROFILE names a profile that is not there."""
    given = {name.lower(): str(value) for name, value in (options or {}).items()}
    if bootstrap is not None:
        return {KAFKA_PREFIX + BOOTSTRAP: bootstrap, **given}
    if given.get(KAFKA_PREFIX + BOOTSTRAP):
        return given
    return {KAFKA_PREFIX + name: value for name, value in find_default_connection().items()} | given
