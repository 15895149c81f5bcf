"""Converts a consumer group into a classic group once its last member of the consumer protocol is gone.

The next heartbeat asks the remaining members to join again; then one of them assigns the partitions.
"""

import logging
from collections.abc import Collection
from typing import Final, NamedTuple

from ottla.coordinators.classic import members as classic
from ottla.coordinators.consumer.members import Member
from ottla.coordinators.consumer.state import GroupState
from ottla.coordinators.formats import GroupMetadataKey, GroupMetadataValue
from ottla.coordinators.groups.consumer_protocol import PROTOCOL_TYPE, choose_assignment_version, write_assignment
from ottla.coordinators.machine import StoredRecord, Turn
from ottla.observability.logs import fields

logger = logging.getLogger(__name__)

ALLOWED_BY: Final = ("downgrade", "bidirectional")


class Downgrade(NamedTuple):
    """An errand: a group was converted to a classic group, whose sessions have to be started in a turn of their own."""

    group_id: str
    needs_rebalance: bool
    """Whether partitions have to be assigned anew, because members have left."""


def may_downgrade(state: GroupState, leaving: Collection[str], turn: Turn) -> bool:
    """Whether at least one member stays, and all that stay use the classic protocol."""
    staying = len(state.members) - len(leaving)
    classic_leaving = sum(state.members[id].classic is not None for id in leaving)
    return (
        0 < staying == state.classic_members - classic_leaving
        and staying <= turn.config.group_max_size
        and turn.config.group_consumer_migration_policy.lower() in ALLOWED_BY
    )


def build_downgrade_records(state: GroupState, leaving: Collection[str], turn: Turn) -> list[StoredRecord]:
    """Records that delete the consumer group and store a classic group with the same members and assignments."""
    logger.info("the consumer group becomes a classic group", extra=fields(group=state.id, epoch=state.epoch))
    roster = classic.Roster()
    for member in state.members_by_id():
        if member.id not in leaving:
            roster.add(_convert_member(member))
    protocol = roster.choose_protocol()
    members = [member.build_record(protocol, _encode_assignment(state, member, protocol, turn)) for member in roster]
    value = GroupMetadataValue(
        protocol_type=PROTOCOL_TYPE,
        generation=state.epoch,
        protocol=protocol,
        leader=members[0].member_id,
        current_state_timestamp=turn.wall_ms,
        members=members,
    )
    return [*state.tombstones(), StoredRecord(GroupMetadataKey(group_id=state.id), value)]


def _convert_member(member: Member) -> classic.Member:
    assert member.classic is not None
    session_timeout_ms = member.classic.session_timeout_ms
    return classic.Member(
        member.id,
        member.instance_id,
        member.client_id,
        member.client_host,
        session_timeout_ms,
        classic.choose_rebalance_timeout_ms(member.rebalance_timeout_ms, session_timeout_ms),
        tuple((protocol.name, protocol.metadata) for protocol in member.classic.supported_protocols),
    )


def _encode_assignment(state: GroupState, member: classic.Member, protocol: str | None, turn: Turn) -> bytes:
    return write_assignment(state.target(member.id), turn.image, choose_assignment_version(member.metadata(protocol)))
