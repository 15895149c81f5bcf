"""The authorizer of a broker, by its settings, and what it adds to the handlers: checks and the audit log."""

from collections.abc import Mapping

from ottla.broker.auditing import log_administration
from ottla.broker.handler_table import Handler, require_rights
from ottla.cluster.image import Image
from ottla.config import BrokerConfig
from ottla.config.authorizer_table import split_users
from ottla.security.authorizer import Authorizer


def build_authorizer(config: BrokerConfig, image: Image) -> Authorizer | None:
    """The authorizer that authorizer.class.name asks for; None if it is empty."""
    if not config.authorizer_class_name:
        return None
    users = split_users(config.super_users)
    authorizer = Authorizer(users, allow_if_no_acl=config.allow_everyone_if_no_acl_found)
    authorizer.follow(image.acls)
    return authorizer


def guard(table: Mapping[int, Handler]) -> Mapping[int, Handler]:
    """The handlers of a broker with an authorizer."""
    return require_rights(log_administration(table))
