"""Which replica a consumer reads from: the leader, or a follower in the consumer's rack (KIP-392).

With a replica.selector.class that is rack-aware the leader sends a consumer that names its rack to a follower in
that rack. The consumer then fetches there, up to the follower's own high watermark, and comes back to the leader when
the follower is gone or does not have its offset.
"""

from ottla.cluster.image import Image
from ottla.replication.in_sync import InSync


def find_nearest(image: Image, in_sync: InSync, rack: str, listener: str, offset: int) -> int | None:
    """The follower in `rack` from which a consumer should read `offset`; None if it should read from the leader.

    Only members of the ISR are chosen: a follower that lags further and further behind would hold its consumers back.
    Among several the one that has copied most is chosen.
    """
    leader = image.broker(in_sync.leader)
    if leader is None or leader.rack == rack:
        return None
    best: tuple[int, float, int] | None = None
    for broker_id, follower in in_sync.followers.items():
        broker = image.broker(broker_id)
        if (
            broker is not None
            and broker.rack == rack
            and not broker.fenced
            and broker.endpoint(listener) is not None
            and broker_id in in_sync.state.isr
            and follower.log_start_offset <= offset <= follower.end_offset
        ):
            candidate = (follower.end_offset, follower.caught_up, -broker_id)
            best = candidate if best is None else max(best, candidate)
    return None if best is None else -best[2]
