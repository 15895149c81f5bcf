"""The authorizer of a broker, by its settings, and what it adds to the handlers: checks and the audit log."""

from typing import Any

from ottla.broker.auditing import log_administration
from ottla.broker.call import Call
from ottla.broker.handler_table import Handler
from ottla.broker.node import Node
from ottla.cluster.image import Image
from ottla.config import BrokerConfig
from ottla.config.authorizer_table import split_users
from ottla.handlers.authorization import require_one
from ottla.security.authorizer import Authorizer


def build_authorizer(config: BrokerConfig, image: Image) -> Authorizer:
    """The authorizer that authorizer.class.name asks for."""
    users = split_users(config.super_users)
    authorizer = Authorizer(users, allow_if_no_acl=config.allow_everyone_if_no_acl_found)
    authorizer.follow(image.acls)
    return authorizer


def guard(handler: Handler) -> Handler:
    """A handler of a broker with an authorizer."""
    return require_rights(log_administration(handler))


def require_rights(handler: Handler) -> Handler:
    """A handler that refuses requests without the right that they need as a whole. What else it requires, it checks
    itself."""
    if not handler.requires.is_whole:
        return handler
    rights, handle = handler.requires.rights, handler.handle

    def check_and_handle(node: Node, call: Call[Any]) -> Any:
        require_one(node, call, rights)
        return handle(node, call)

    return handler._replace(handle=check_and_handle)
