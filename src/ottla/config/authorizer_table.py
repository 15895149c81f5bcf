"""The table of broker settings about access control. Names and defaults are those of Kafka."""

from ottla.config.settings import BOOLEAN, STRING, Setting, Settings

OWN_AUTHORIZER = "ottla.security.authorizer.Authorizer"
AUTHORIZERS = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
    OWN_AUTHORIZER,
)
"""Class names of Kafka's own authorizers, old and new, and of ours. All of them mean the same here."""


def _check_authorizer(name: str) -> str | None:
    if not name or name in AUTHORIZERS:
        return None
    return f"{name!r} is not one of {', '.join(AUTHORIZERS)}; authorizers of others cannot be loaded"


def _check_super_users(text: str) -> str | None:
    wrong = [user for user in split_users(text) if ":" not in user]
    return f"{wrong[0]!r} is not a principal like User:alice; principals are separated by ';'" if wrong else None


def split_users(text: str) -> tuple[str, ...]:
    """The principals of super.users. They are separated by ';', because the name of a certificate contains ','."""
    return tuple(user.strip() for user in text.split(";") if user.strip())


# fmt: off
class AuthorizerSettings(Settings):
    authorizer_class_name = Setting(
        STRING, "", _check_authorizer,
        doc="Kafka's StandardAuthorizer or AclAuthorizer: clients may do what ACLs allow. Empty: everything.",
    )
    super_users = Setting(
        STRING, "", _check_super_users,
        doc="Principals that may do everything, as User:alice;User:bob. The brokers' own principal belongs to them.",
    )
    allow_everyone_if_no_acl_found = Setting(
        BOOLEAN, False,
        doc="Whether everybody may do everything on a resource for which there is no ACL.",
    )
