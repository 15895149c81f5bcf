"""What AlterConfigs and IncrementalAlterConfigs share: each resource of a request is changed by itself, or refused."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from ottla.broker.node import Node
from ottla.cluster.changes import Change, ConfigResource
from ottla.cluster.configs import (
    ConfigAlteration,
    alter_brokers,
    alter_client_metrics,
    alter_group,
    alter_topic,
    preview,
)
from ottla.config import ConfigError
from ottla.config.security_table import LISTENER_PREFIX
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.deadlines import Deadline

DECIDERS = {
    int(ConfigResource.TOPIC): alter_topic,
    int(ConfigResource.BROKER): alter_brokers,
    int(ConfigResource.GROUP): alter_group,
    int(ConfigResource.CLIENT_METRICS): alter_client_metrics,
}


class Resource(Protocol):
    """An AlterConfigsResource of either API."""

    resource_type: int
    resource_name: str


class ResourceResponse(Protocol):
    error_code: int
    error_message: str | None


SomeResource = TypeVar("SomeResource", bound=Resource)
SomeResponse = TypeVar("SomeResponse", bound=ResourceResponse)


async def change_each(
    resources: Iterable[SomeResource],
    change: Callable[[SomeResource], Awaitable[None]],
    make_response: Callable[[SomeResource], SomeResponse],
) -> list[SomeResponse]:
    """Call `change` for each resource that the request names once, and collect the responses."""
    resources = list(resources)
    times_named = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    responses = []
    for resource in resources:
        response = make_response(resource)
        responses.append(response)
        try:
            if times_named[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names this resource more than once")
            await change(resource)
        except KafkaError as error:
            response.error_code, response.error_message = error.code, error.message or None
    return responses


async def change_settings(
    node: Node, resource: Resource, alterations: list[ConfigAlteration], *, replace: bool, validate_only: bool
) -> None:
    """Append the changes to the metadata log. With `replace`, settings that are not named get their default."""
    decider = DECIDERS.get(resource.resource_type)
    if decider is None:
        verb = "replaced" if replace else "changed"
        message = f"settings of resource type {resource.resource_type} cannot be {verb}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    decide = partial(decider, name=resource.resource_name, alterations=alterations, config=node.config, replace=replace)
    if any(alteration.name.startswith(LISTENER_PREFIX) for alteration in alterations):
        await _check_listeners(node, decide(node.image).changes)
    if validate_only:
        decide(node.image)
    else:
        await node.metadata.change(decide, Deadline(node).left_s())


async def _check_listeners(node: Node, changes: Sequence[Change]) -> None:
    """Refuse settings of listeners whose certificates cannot be used, before they are in force."""
    if node.check_listeners is None:
        return
    try:
        await node.check_listeners(preview(node.image, node.config, changes))
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
