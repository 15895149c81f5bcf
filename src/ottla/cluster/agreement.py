"""The decider by which brokers find out that they replay the metadata differently.

Elections are part of replay, so a bug, or two versions of Ottla, could give brokers different leaders for the same
entries. The controller appends the digest of its image from time to time. A broker whose image has another digest stops
with the reason: to go on would mean two leaders.
"""

from ottla.cluster.changes import VerifyDigest
from ottla.cluster.decision import Decision
from ottla.cluster.image import Image


def verify_agreement(image: Image) -> Decision[int]:
    """Have every broker compare its image with this one."""
    return Decision([VerifyDigest(image.digest())], 1)
