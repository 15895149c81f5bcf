"""The changes that the metadata log consists of, and their encoding.

One entry of the log holds a few changes that are applied together or not at all. It is encoded as a JSON array with one
object per change: `kind` and the fields that differ from their default, keys sorted, no blanks, bytes as base64url
without padding. The encoding is canonical: equal changes give equal bytes. An unknown kind or field is refused, never
skipped. The array of a large entry is compressed, because its objects repeat the same names and ids.
"""

import base64
import binascii
import dataclasses
import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from enum import IntEnum
from functools import lru_cache
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from ottla.cluster.identity_changes import IdentityChange
from ottla.errors import ErrorCode, KafkaError
from ottla.security.acls import Acl

ENTRY_BYTES_MAX = 512 << 10
"""ZooKeeper drops the connection of a client that sends more than 1 MiB. Half of it leaves room for the rest of the
request."""

PLAIN_BYTES_MAX = 16 << 20
"""Size of an entry before compression: about 130,000 new partitions."""

COMPRESS_FROM_BYTES = 4096

COMPRESSED = b"\x01"
"""The first byte of a compressed entry. The rest is a zlib stream. An entry that is not compressed begins with '['."""

_COMPRESSION_LEVEL = 3
"""10,000 new partitions are 1.2 MB; this makes 40 kB of them in 3 ms."""

NO_LEADER = -1
ZERO_ID = bytes(16)


class MalformedEntry(ValueError):
    """Bytes that are not an entry of this version of the metadata log."""


class ConfigResource(IntEnum):
    """What a setting belongs to, with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


class Endpoint(NamedTuple):
    """An address of a broker: the listener's name, host, port, and security protocol."""

    name: str
    host: str
    port: int
    protocol: str


class SupportedFeature(NamedTuple):
    """The levels of a feature that a broker supports, both ends included."""

    name: str
    lowest: int
    highest: int


class QuotaName(NamedTuple):
    """A part of whom a quota is for: a type (user, client-id, ip) and a name; None means the default."""

    type: str
    name: str | None


def quota_order(names: tuple[QuotaName, ...]) -> tuple[tuple[str, bool, str], ...]:
    """The key by which those who have quotas are sorted: names may be None."""
    return tuple((kind, name is not None, name or "") for kind, name in names)


class TopicReplicas(NamedTuple):
    """Some partitions of one topic."""

    topic_id: bytes
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SetClusterId:
    """The first change of a cluster."""

    cluster_id: str


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """A broker starts, or comes back after its session expired. It leaves every ISR and is fenced.

    `directories`: the ids of all its data directories. `clean`: the broker has kept everything that it acknowledged
    since its previous registration; otherwise it is no longer eligible to lead partitions that another replica can
    lead. `incarnation` is a random id of the process.

    The broker epoch is the version of the entry. `epoch` and `lost_directories` are given in snapshots only, because a
    snapshot does not keep earlier entries. `first_rules` marks a registration by a version of Ottla that could not form
    a cluster yet: what follows it is replayed by the election rules of that version. `cordoned`: the broker was started
    with all its directories cordoned.
    """

    broker_id: int
    directories: tuple[bytes, ...]
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    clean: bool = False
    epoch: int = -1
    features: tuple[SupportedFeature, ...] = ()
    incarnation: bytes = b""
    lost_directories: tuple[bytes, ...] = ()
    first_rules: bool = False
    cordoned: bool = False


@dataclass(frozen=True, slots=True)
class FenceBroker:
    """A broker is gone: it leads nothing and leaves every ISR."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class UnfenceBroker:
    """A broker has caught up with the metadata and serves: it leads partitions without a leader that it may lead."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BeginShutdown:
    """A broker is about to stop: it hands its leaderships over and leaves every ISR in which others remain."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class TakeReplicasOffline:
    """Replicas of a running broker whose data directory failed. They serve again when the broker registers again.

    `lost`: the logs are gone for good. The broker then serves, but it may lead these partitions only after an unclean
    election, or once it has copied them from another leader.
    """

    broker_id: int
    broker_epoch: int
    replicas: tuple[TopicReplicas, ...]
    lost: bool = False


@dataclass(frozen=True, slots=True)
class UnregisterBroker:
    """A fenced broker is removed from the cluster. What it kept is no longer counted on."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class BecomeController:
    """A broker becomes the controller. The controller epoch is the version of the entry, as for RegisterBroker."""

    broker_id: int
    broker_epoch: int
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """A topic without partitions: those follow in the same entry."""

    topic_id: bytes
    name: str


@dataclass(frozen=True, slots=True)
class CreatePartition:
    """The next partition of a topic. The fields after `leader` are given in snapshots only."""

    topic_id: bytes
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    recovering: bool = False
    elr: tuple[int, ...] = ()
    last_known_leader: int = NO_LEADER
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangePartition:
    """Fields that are None stay as they are. A new leader, and any removal of a replica, raises the leader epoch.

    `partition_epoch` is the epoch that the writer saw. If the partition is at another one, the change is refused.
    Without `leader`, the present leader stays if it can; otherwise replay elects one.
    """

    topic_id: bytes
    partition: int
    partition_epoch: int
    isr: tuple[int, ...] | None = None
    leader: int | None = None
    replicas: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    recovering: bool | None = None


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Deletes a topic with its partitions and its settings."""

    topic_id: bytes


@dataclass(frozen=True, slots=True)
class SetConfig:
    """A setting of a topic, a broker (an empty name means all brokers) or a group. The value None removes it."""

    resource_type: ConfigResource
    resource_name: str
    key: str
    value: str | None


@dataclass(frozen=True, slots=True)
class SetQuota:
    """A quota of users, client ids or addresses. The value None removes it."""

    entity: tuple[QuotaName, ...]
    key: str
    value: float | None


@dataclass(frozen=True, slots=True)
class ReserveProducerIds:
    """A block of producer ids for one broker."""

    broker_id: int
    broker_epoch: int
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class SetFeature:
    """The level of a feature of the cluster. Level 0 removes the feature."""

    name: str
    level: int


@dataclass(frozen=True, slots=True)
class AddAcl:
    """An ACL that is not there yet."""

    acl: Acl


@dataclass(frozen=True, slots=True)
class RemoveAcl:
    """An ACL is taken away. It is named by all of its fields, so it is exactly this one."""

    acl: Acl


@dataclass(frozen=True, slots=True)
class SetElectionRules:
    """Which rules of replay elect leaders from here on. Only a snapshot of an old image needs to say it."""

    level: int


@dataclass(frozen=True, slots=True)
class RememberUnregistered:
    """The largest id of an unregistered broker. Only a snapshot has it; replay of UnregisterBroker notes it."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class VerifyDigest:
    """The digest of the image before this change. A broker whose image has another digest stops: replay disagrees."""

    digest: bytes


Change = (
    SetClusterId
    | RegisterBroker
    | FenceBroker
    | UnfenceBroker
    | BeginShutdown
    | TakeReplicasOffline
    | UnregisterBroker
    | BecomeController
    | CreateTopic
    | CreatePartition
    | ChangePartition
    | DeleteTopic
    | SetConfig
    | SetQuota
    | ReserveProducerIds
    | SetFeature
    | AddAcl
    | RemoveAcl
    | SetElectionRules
    | RememberUnregistered
    | VerifyDigest
    | IdentityChange
)


def encode(changes: Iterable[Change]) -> bytes:
    """The encoding of the changes of an entry. Equal changes give equal bytes; a large entry is compressed."""
    plain = encode_plain(changes)
    if len(plain) > PLAIN_BYTES_MAX:
        message = f"the change is too large: {len(plain)} bytes of metadata, {PLAIN_BYTES_MAX} are the limit"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
    if len(plain) < COMPRESS_FROM_BYTES:
        return plain
    return COMPRESSED + zlib.compress(plain, _COMPRESSION_LEVEL)


def count_fitting(changes: Sequence[ChangePartition]) -> int:
    """How many of these changes, from the first on, fit one entry."""
    count = len(changes)
    if sum(map(_estimate_size, changes)) <= ENTRY_BYTES_MAX:
        return count
    while (excess := _measure_excess(changes[:count])) > 1:
        count = int(count / excess * 0.95)  # the first ones may be larger than the others
    return count


def _estimate_size(change: ChangePartition) -> int:
    """No less than the bytes that the change takes in an entry, which is compressed."""
    brokers = (change.isr or (), change.replicas or (), change.adding or (), change.removing or ())
    return 60 + 5 * sum(map(len, brokers))


def _measure_excess(changes: Sequence[Change]) -> float:
    """The size of an entry with these changes, as a multiple of what is allowed."""
    plain = encode_plain(changes)
    return max(len(plain) / PLAIN_BYTES_MAX, (1 + len(zlib.compress(plain, _COMPRESSION_LEVEL))) / ENTRY_BYTES_MAX)


def encode_plain(changes: Iterable[Change]) -> bytes:
    """The canonical encoding, never compressed."""
    return _dump([_encode_members(change) for change in changes])


def encode_change(change: Change) -> bytes:
    return _dump(_encode_members(change))


def _encode_members(change: Change) -> dict[str, Any]:
    members: dict[str, Any] = {"kind": type(change).__name__}
    for name, field in _FIELDS[type(change)].items():
        value = getattr(change, name)
        if value != field.default:
            members[name] = field.write(value)
    return members


def _dump(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def decode(data: bytes) -> tuple[Change, ...]:
    """The changes of an entry. MalformedEntry says in one line what is wrong with the bytes."""
    if data.startswith(COMPRESSED):
        data = _decompress(data[len(COMPRESSED) :])
    try:
        items = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MalformedEntry(f"not JSON: {error}") from None
    if type(items) is not list:
        raise MalformedEntry("not an array of changes")
    return tuple(_decode_change(item) for item in items)


def _decompress(data: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(data, PLAIN_BYTES_MAX)
    except zlib.error as error:
        raise MalformedEntry(f"not compressed changes: {error}") from None
    if not stream.eof or stream.unused_data:
        raise MalformedEntry(f"compressed changes that end too early, or are larger than {PLAIN_BYTES_MAX} bytes")
    return plain


def _decode_change(item: object) -> Change:
    if type(item) is not dict:
        raise MalformedEntry(f"not a change: {item!r}")
    kind = item.pop("kind", None)
    change = _KINDS.get(kind) if type(kind) is str else None
    if change is None:
        raise MalformedEntry(f"unknown kind of change {kind!r}; written by a newer version?")
    fields = _FIELDS[change]
    _rename_old_fields(kind, item)
    unknown = sorted(item.keys() - fields.keys())
    if unknown:
        raise MalformedEntry(f"{kind} has an unknown field {unknown[0]!r}; written by a newer version?")
    values = {}
    for name, field in fields.items():
        if name in item:
            try:
                values[name] = field.read(item[name])
            except (TypeError, ValueError):
                raise MalformedEntry(f"{kind}.{name} cannot be {item[name]!r}") from None
        elif field.default is MISSING:
            raise MalformedEntry(f"{kind} lacks {name}")
    return change(**values)  # type: ignore[no-any-return]


def _rename_old_fields(kind: str, item: dict[str, Any]) -> None:
    """Read what versions of Ottla wrote that could not form a cluster yet."""
    if kind == "RegisterBroker" and "directory_id" in item:
        item["directories"] = [item.pop("directory_id")]
        item["first_rules"] = True
    elif kind == "CreatePartition" and "unclean" in item:
        item["recovering"] = item.pop("unclean")


class _Field(NamedTuple):
    default: Any
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


def _exactly(expected: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) is not expected:
            raise TypeError(value)
        return value

    return read


def _read_bytes(value: Any) -> bytes:
    if type(value) is not str or "=" in value:
        raise TypeError(value)
    return _decode_base64(value)


@lru_cache(1024)  # the partitions of a topic repeat its id
def _decode_base64(value: str) -> bytes:
    try:
        data = base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        raise ValueError(value) from None
    if _write_bytes(data) != value:  # unused bits are set: a second encoding of the same bytes
        raise ValueError(value)
    return data


@lru_cache(1024)
def _write_bytes(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _same(value: Any) -> Any:
    return value


def _optional(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


def _codec(annotation: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """The functions that read and write a field of this type."""
    if annotation is bytes:
        return _read_bytes, _write_bytes
    if isinstance(annotation, type) and issubclass(annotation, tuple) and annotation is not tuple:
        return _named_tuple_codec(annotation)
    if isinstance(annotation, type) and issubclass(annotation, IntEnum):
        return lambda value: annotation(_exactly(int)(value)), int
    if get_origin(annotation) is tuple:
        if get_args(annotation)[0] is int:
            return _read_numbers, list
        read, write = _codec(get_args(annotation)[0])
        sequence = _exactly(list)
        return lambda value: tuple(map(read, sequence(value))), lambda value: list(map(write, value))
    if get_origin(annotation) is UnionType:
        read, write = _codec(get_args(annotation)[0])
        return _optional(read), _optional(write)
    return _exactly(annotation), _same


def _read_numbers(value: Any) -> tuple[int, ...]:
    if type(value) is not list:
        raise TypeError(value)
    for each in value:
        if type(each) is not int:
            raise TypeError(value)
    return tuple(value)


def _named_tuple_codec(annotation: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """A named tuple is written as an array of its fields."""
    codecs = [_codec(hint) for hint in get_type_hints(annotation).values()]

    def read(value: Any) -> Any:
        return annotation(*(codec[0](part) for codec, part in zip(codecs, _exactly(list)(value), strict=True)))

    def write(value: Any) -> Any:
        return [codec[1](part) for codec, part in zip(codecs, value, strict=True)]

    return read, write


def _fields_of(change: Any) -> Mapping[str, _Field]:
    hints = get_type_hints(change)
    return {field.name: _Field(field.default, *_codec(hints[field.name])) for field in dataclasses.fields(change)}


_KINDS: Mapping[str, Any] = {change.__name__: change for change in get_args(Change)}
_FIELDS: Mapping[Any, Mapping[str, _Field]] = {change: _fields_of(change) for change in _KINDS.values()}
