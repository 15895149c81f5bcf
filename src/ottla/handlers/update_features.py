"""UpdateFeatures: change the levels of the features of the cluster (KIP-584).

Versions: 1 the kind of downgrade that is allowed, validate_only; 2 no results per feature, because all of them
are changed or none.
"""

from functools import partial

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.features import FeatureUpdate, update_features
from ottla.handlers.deadlines import Deadline
from ottla.security import rights
from ottla.wire.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

REQUIRES = rights.whole(rights.ALTER_CLUSTER)


async def handle(node: Node, call: Call[UpdateFeaturesRequest]) -> UpdateFeaturesResponse:
    request = call.body
    updates = [
        FeatureUpdate(asked.feature, asked.max_version_level, asked.upgrade_type) for asked in request.feature_updates
    ]
    decide = partial(update_features, updates=updates, min_insync_replicas=node.config.min_insync_replicas)
    if request.validate_only:
        decide(node.image)
    else:
        await node.metadata.change(decide, Deadline(node, request.timeout_ms).left_s())
    return UpdateFeaturesResponse(results=[UpdatableFeatureResult(feature=update.feature) for update in updates])
