"""Requests of the two APIs of quotas."""

from ottla.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from ottla.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tests.raw_client import RawClient

Names = dict[str, str | None]
EXACT, DEFAULT, ANY = range(3)


def alter(names: Names, *, validate_only: bool = False, **values: float | None) -> AlterClientQuotasRequest:
    """Set quotas of one entity; None removes one."""
    return AlterClientQuotasRequest(entries=[build_entry(names, **values)], validate_only=validate_only)


def build_entry(names: Names, **values: float | None) -> AlterClientQuotasRequestEntryData:
    return AlterClientQuotasRequestEntryData(
        entity=[AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name) for kind, name in names.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )


def describe(*components: tuple[str, int, str | None], strict: bool = False) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components],
        strict=strict,
    )


def set_quota(client: RawClient, names: Names, **values: float | None) -> None:
    (entry,) = client.request(AlterClientQuotasRequest(entries=[build_entry(names, **values)]), 1).entries
    assert entry.error_code == 0, entry.error_message


def list_quotas(client: RawClient) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    """Every entity with its quotas."""
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            each.key: each.value for each in entry.values
        }
        for entry in client.request(describe(), 1).entries
    }
