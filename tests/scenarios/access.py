"""A broker with an authorizer, and clients with names: the address that a client connects from says who it is.

So the tests of access need no authentication, whose own tests are elsewhere. Only a broker in a thread of this process
can be used.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

import ottla.testing
from ottla.broker.call import Client
from ottla.security.acls import Acl
from ottla.security.operations import Operation, PatternType, Permission, ResourceType
from ottla.security.principal import Principal
from ottla.testing import LocalBroker
from ottla.wire.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tests.raw_client import RawClient

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

ADDRESSES = {"root": "127.0.0.1", "alice": "127.0.0.2", "bob": "127.0.0.3", "nobody": "127.0.0.4"}
USERS: Mapping[str, Principal] = {address: Principal("User", name) for name, address in ADDRESSES.items()}

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY


@contextmanager
def name_clients() -> Iterator[None]:
    """Clients get their principal from their address. Others are anonymous."""
    original: Any = Client.__init__

    def init(self: Client, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        self.principal = USERS.get(self.address, self.principal)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "__init__", init)
        yield


@contextmanager
def guarded_broker(**settings: Any) -> Iterator[LocalBroker]:
    """A broker on which only root may do anything, until ACLs allow more."""
    settings = {"log_initial_task_delay_ms": 86_400_000, "super_users": "User:root", **settings}
    with name_clients(), ottla.testing.broker(authorizer_class_name=STANDARD_AUTHORIZER, **settings) as running:
        yield running


def connect_as(user: str, broker: LocalBroker, client_id: str = "raw") -> RawClient:
    return RawClient("127.0.0.1", broker.port, client_id, source=ADDRESSES[user])


def rule(
    user: str,
    operation: Operation,
    resource_type: ResourceType,
    name: str,
    *,
    pattern_type: PatternType = LITERAL,
    permission: Permission = ALLOW,
    host: str = "*",
) -> Acl:
    return Acl(resource_type, name, pattern_type, f"User:{user}", host, operation, permission)


def add(client: RawClient, *acls: Acl) -> None:
    answer = client.request(
        CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=acl.resource_type,
                    resource_name=acl.name,
                    resource_pattern_type=acl.pattern_type,
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
                for acl in acls
            ]
        ),
        3,
    )
    assert [each.error_code for each in answer.results] == [0] * len(acls), answer.results


def take_away(client: RawClient, *acls: Acl) -> None:
    """Delete exactly these."""
    answer = client.request(
        DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=acl.resource_type,
                    resource_name_filter=acl.name,
                    pattern_type_filter=acl.pattern_type,
                    principal_filter=acl.principal,
                    host_filter=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
                for acl in acls
            ]
        ),
        3,
    )
    assert [len(each.matching_acls) for each in answer.filter_results] == [1] * len(acls), answer


def delete_all_acls(client: RawClient) -> None:
    everything = DeleteAclsFilter(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
    answer = client.request(DeleteAclsRequest(filters=[everything]), 3)
    assert answer.filter_results[0].error_code == 0
