"""Foreign-key joins of tables: each row of the left table with the row of the right one that its foreign key names.

The rows of a right key are in one partition, the left rows that name it in many. So a join takes steps in two
subtopologies, as in Kafka Streams:

by primary key   SubscribeKernel      each change of the left table tells its foreign key: here I am, or I am gone
by foreign key   RespondKernel        keeps who has subscribed to which right key, and answers with the right value:
                                      to a subscription, and to all subscribers when the right value changes
by primary key   ResolveKernel        joins the answer with the left value
                 DerivedTableKernel   (of `tables.py`) keeps the result, and drops tombstones where there is none

Answers come later, from several partitions. Each carries the hash of the left value that it was asked for. If the left
value has changed in the meantime the answer is dropped: another one is on its way. So the result never mixes an old
foreign key with a new one.

Kafka Streams does not answer if it thinks that there was no result before. That saves messages, but if a left row
changes while answers are on their way, a result can stay for ever. Here every subscription is answered, and the stored
result tells whether a tombstone is needed. So the changes are those of Kafka Streams without its needless tombstones.

How the steps are connected (N is the name of the join):

    left changes, with `_old` -> SubscribeKernel -> output 0: repartition topic N-subscriptions, by `subscription_key`
                                                 -> output 1: ResolveKernel
    subscriptions, right changes -> RespondKernel -> repartition topic N-responses, by `response_key`
    left changes, output 1 of SubscribeKernel, responses -> ResolveKernel -> DerivedTableKernel with the store N

SubscribeKernel and ResolveKernel are in the subtopology of the left table, whose store the latter reads. RespondKernel
is in that of the right table and reads its store. Both repartition topics hold rows of streams.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import numpy as np
import orjson
import pyarrow as pa

from ottla.streams.kernels.joining import JoinShape, Taken, in_order, rank_rows, take_hidden, take_keys
from ottla.streams.kernels.kernel import KernelContext, StoreSpec
from ottla.streams.kernels.versions import NONE, TableVersions, number_array, table_codec
from ottla.streams.rows import DELETED, HIDDEN, OLD, TIMESTAMP, stream_schema, table_schema
from ottla.streams.state.keys import after_prefix, decode_keys, encode_keys, prefix_of
from ottla.streams.state.values import RowCodec

NULL_FOREIGN_KEY: Final = "null foreign key"
STALE_RESPONSE: Final = "stale response"

_HASH, _IS_GONE, _IS_ANSWERED, _IS_FOUND = "hash", "is_gone", "is_answered", "is_found"


def subscription_key(shape: JoinShape) -> list[str]:
    """The columns of the right table's key."""
    return [f"foreign_{name}" for name in shape.right.key]


def subscription_columns(shape: JoinShape) -> pa.Schema:
    """The user's columns, so to speak, of a row on its way to the partition of its foreign key."""
    foreign = [(f"foreign_{name}", shape.right.columns.field(name).type) for name in shape.right.key]
    flags = [(_HASH, pa.binary()), (_IS_GONE, pa.bool_()), (_IS_ANSWERED, pa.bool_())]
    return pa.schema([*foreign, *_primary_fields(shape), *flags])


def response_key(shape: JoinShape) -> list[str]:
    """The columns of the left table's key."""
    return [field.name for field in _primary_fields(shape)]


def response_columns(shape: JoinShape) -> pa.Schema:
    """The columns of a row on its way back: the hash that was asked with, and the right value if there is one."""
    values = [(f"right_{field.name}", field.type) for field in shape.right.values]
    right_key = [(f"right_{name}", shape.right.columns.field(name).type) for name in shape.right.key]
    fields = [*_primary_fields(shape), (_HASH, pa.binary()), (_IS_FOUND, pa.bool_()), *right_key, *values]
    return pa.schema(fields)


def _primary_fields(shape: JoinShape) -> list[pa.Field]:
    return [pa.field(f"primary_{name}", shape.left.columns.field(name).type) for name in shape.left.key]


class SubscribeKernel:
    """Input: changes of the left table with `_old`. Outputs: messages for the partitions of foreign keys, and answers
    to rows that are gone or have no foreign key: for them nobody needs to be asked.

    As in Kafka Streams, an inner join asks the partition of the old foreign key nevertheless, if there was one: the
    tombstone has the time of the right row if that is the later one.
    """

    stores: Sequence[StoreSpec] = ()

    def __init__(self, label: str, shape: JoinShape, foreign_key: Sequence[str]) -> None:
        if shape.how not in ("inner", "left"):
            raise ValueError(f"{label}: unknown kind of join {shape.how!r}")
        self._label = label
        self._shape = shape
        self._foreign_key = tuple(foreign_key)
        self._hash_codec = RowCodec(pa.schema(shape.left.values))

    def process(self, inputs: Sequence[pa.Table], context: KernelContext) -> Sequence[pa.Table]:
        (changes,) = inputs
        if not changes.num_rows:
            return [
                stream_schema(columns).empty_table()
                for columns in (subscription_columns(self._shape), response_columns(self._shape))
            ]
        new, old = self._foreign_columns(changes, is_old=False), self._foreign_columns(changes, is_old=True)
        new_keys, old_keys = encode_keys(new, new.column_names), encode_keys(old, old.column_names)
        deleted = changes.column(DELETED).to_pylist()
        existed = changes.column(OLD).is_valid().to_pylist()
        gone: list[tuple[bool, bool]] = []
        rows: list[int] = []
        foreign: list[int] = []
        answered: list[int] = []
        for row in range(changes.num_rows):
            old_key = old_keys[row] if existed[row] else None
            new_key = None if deleted[row] else new_keys[row]
            if old_key is not None and old_key != new_key:
                rows.append(row)
                foreign.append(changes.num_rows + row)
                gone.append((True, new_key is None and self._shape.how == "inner"))
            if new_key is not None:
                rows.append(row)
                foreign.append(row)
                gone.append((False, True))
            elif existed[row] or not deleted[row]:
                if old_key is None or self._shape.how == "left":
                    answered.append(row)
                if self._shape.how == "inner" and not deleted[row]:
                    context.dropped[self._label, NULL_FOREIGN_KEY] += 1
        hashes = self._hash(changes, deleted)
        messages = self._make_messages(changes, pa.concat_tables([new, old]), rows, foreign, hashes, gone)
        return [messages, self._make_answers(changes, answered, hashes)]

    def _foreign_columns(self, changes: pa.Table, *, is_old: bool) -> pa.Table:
        """The foreign key of the new or the old values, with the names and types of subscriptions."""
        schema = subscription_columns(self._shape)
        old = dict(zip([f.name for f in self._shape.left.values], changes.column(OLD).flatten(), strict=True))
        columns = []
        for name, to in zip(self._foreign_key, subscription_key(self._shape), strict=True):
            column = old[name] if is_old and name not in self._shape.left.key else changes.column(name)
            columns.append(column.cast(schema.field(to).type))
        return pa.Table.from_arrays(columns, names=subscription_key(self._shape))

    def _hash(self, changes: pa.Table, deleted: Sequence[bool]) -> list[bytes | None]:
        values = self._hash_codec.encode(changes)
        return [None if gone else hash_of(value) for gone, value in zip(deleted, values, strict=True)]

    def _make_messages(
        self,
        changes: pa.Table,
        foreign_columns: pa.Table,
        rows: Sequence[int],
        foreign: Sequence[int],
        hashes: Sequence[bytes | None],
        gone: Sequence[tuple[bool, bool]],
    ) -> pa.Table:
        """`gone` says of each message whether it ends a subscription, and whether it wants an answer."""
        taken = changes.take(number_array(rows))
        columns = [
            *foreign_columns.take(number_array(foreign)).columns,
            *(taken.column(name) for name in self._shape.left.key),
            pa.array([hashes[row] for row in rows], pa.binary()),
            pa.array([is_gone for is_gone, _ in gone], pa.bool_()),
            pa.array([is_answered for _, is_answered in gone], pa.bool_()),
            *(taken.column(name) for name in HIDDEN.names),
        ]
        return pa.Table.from_arrays(columns, schema=stream_schema(subscription_columns(self._shape)))

    def _make_answers(self, changes: pa.Table, rows: Sequence[int], hashes: Sequence[bytes | None]) -> pa.Table:
        taken = changes.take(number_array(rows))
        schema = response_columns(self._shape)
        known = {f"primary_{name}": taken.column(name) for name in self._shape.left.key}
        known[_HASH] = pa.array([hashes[row] for row in rows], pa.binary())
        known[_IS_FOUND] = pa.repeat(False, len(rows))
        columns = [known.get(field.name, pa.nulls(len(rows), field.type)) for field in schema]
        hidden = [taken.column(name) for name in HIDDEN.names]
        return pa.Table.from_arrays([*columns, *hidden], schema=stream_schema(schema))


class RespondKernel:
    """Inputs: subscriptions, changes of the right table (they need no `_old`). Output: responses.

    The store N-subscriptions has who has subscribed: escaped right key, left key -> {"hash": ...}. The right table's
    store is only read.
    """

    def __init__(self, name: str, shape: JoinShape, right_store: str) -> None:
        self.stores: Sequence[StoreSpec] = (StoreSpec(f"{name}-subscriptions"),)
        self._shape = shape
        self._right_store = right_store
        self._codec = table_codec(shape.right.columns, shape.right.key)

    def process(self, inputs: Sequence[pa.Table], context: KernelContext) -> Sequence[pa.Table]:
        subscriptions, changes = inputs
        shape = self._shape
        if not subscriptions.num_rows and not changes.num_rows:
            return [stream_schema(response_columns(shape)).empty_table()]
        foreign_keys = encode_keys(subscriptions, subscription_key(shape))
        primary_keys = encode_keys(subscriptions, response_key(shape))
        hashes = subscriptions.column(_HASH).to_pylist()
        gone, answered = (subscriptions.column(name).to_pylist() for name in (_IS_GONE, _IS_ANSWERED))
        change_keys = encode_keys(changes, shape.right.key)
        times = [rows.column(TIMESTAMP).to_pylist() for rows in inputs]
        places, change_places = rank_rows(inputs)
        right = context.store(self._right_store)
        versions = TableVersions(self._codec, changes, change_places, change_keys, right, foreign_keys)
        known = versions.find(foreign_keys, places).tolist()
        store = context.store(self.stores[0].name)
        responses = _Responses()
        for side, row in in_order(inputs):
            if side == 0:
                key, primary = foreign_keys[row], primary_keys[row]
                assert key is not None and primary is not None, "rows without a foreign key are not sent"
                subscription = None if gone[row] else orjson.dumps({_HASH: hashes[row].hex()})
                store.put(prefix_of(key) + primary, subscription)
                if answered[row]:
                    found = known[row]
                    time = times[0][row] if found == NONE else max(times[0][row], int(versions.times[found]))
                    responses.add(row, primary, hashes[row], NONE if gone[row] else found, time)
            elif (changed := change_keys[row]) is not None:
                found = int(versions.made[row])
                prefix = prefix_of(changed)
                for id, value in store.range(prefix, after_prefix(prefix)):
                    hash = bytes.fromhex(orjson.loads(value)[_HASH])
                    responses.add(subscriptions.num_rows + row, id[len(prefix) :], hash, found, times[1][row])
        return [self._make_responses(inputs, versions, responses)]

    def _make_responses(self, inputs: Sequence[pa.Table], versions: TableVersions, responses: "_Responses") -> pa.Table:
        shape = self._shape
        primary = decode_keys(responses.primary_keys, shape.left.key_columns).columns
        keys = take_keys(inputs, [subscription_key(shape), shape.right.key], responses.causes)
        right = Taken(versions.values, np.array(responses.versions, np.int64))
        names = [*shape.right.key, *shape.right.value_names]
        columns = [
            *primary,
            pa.array(responses.hashes, pa.binary()),
            pa.array([number != NONE for number in responses.versions], pa.bool_()),
            *(right.column(name, shape.right, keys) for name in names),
            *take_hidden(inputs, responses.causes, responses.times),
        ]
        return pa.Table.from_arrays(columns, schema=stream_schema(response_columns(shape)))


class _Responses:
    """Responses of a batch, by what makes them."""

    def __init__(self) -> None:
        self.causes: list[int] = []
        self.primary_keys: list[bytes] = []
        self.hashes: list[bytes | None] = []
        self.versions: list[int] = []
        self.times: list[int] = []

    def add(self, cause: int, primary: bytes, hash: bytes | None, version: int, time: int) -> None:
        self.causes.append(cause)
        self.primary_keys.append(primary)
        self.hashes.append(hash)
        self.versions.append(version)
        self.times.append(time)


class ResolveKernel:
    """Inputs: changes of the left table (they need no `_old`), then rows that answer: those of SubscribeKernel and
    those of RespondKernel. Output: changes of the result, without `_old`. The left table's store is only read."""

    stores: Sequence[StoreSpec] = ()

    def __init__(self, label: str, shape: JoinShape, left_store: str) -> None:
        self._label = label
        self._shape = shape
        self._left_store = left_store
        self._codec = table_codec(shape.left.columns, shape.left.key)
        self._hash_codec = RowCodec(pa.schema(shape.left.values))

    def process(self, inputs: Sequence[pa.Table], context: KernelContext) -> Sequence[pa.Table]:
        changes, *answers = inputs
        shape = self._shape
        if not any(each.num_rows for each in answers):
            return [table_schema(shape.columns, shape.key).empty_table()]
        change_keys = encode_keys(changes, shape.left.key)
        answer_keys = [encode_keys(each, response_key(shape)) for each in answers]
        asked = [key for keys in answer_keys for key in keys]
        change_places, *answer_places = rank_rows(inputs)
        places = np.concatenate(answer_places)
        left = context.store(self._left_store)
        versions = TableVersions(self._codec, changes, change_places, change_keys, left, asked)
        order = np.argsort(places)
        lefts = versions.find(asked, places)[order].tolist()
        return [self._make_changes(pa.concat_tables(answers).take(number_array(order)), versions, lefts, context)]

    def _make_changes(
        self, answers: pa.Table, versions: TableVersions, lefts: Sequence[int], context: KernelContext
    ) -> pa.Table:
        shape = self._shape
        values = self._hash_codec.encode(versions.values.take(number_array(np.array(lefts, np.int64))))
        hashes = [None if left == NONE else hash_of(value) for left, value in zip(lefts, values, strict=True)]
        is_current = [asked == now for asked, now in zip(answers.column(_HASH).to_pylist(), hashes, strict=True)]
        if not all(is_current):
            context.dropped[self._label, STALE_RESPONSE] += is_current.count(False)
            answers = answers.filter(pa.array(is_current))
            lefts = [left for left, current in zip(lefts, is_current, strict=True) if current]
        found = answers.column(_IS_FOUND).to_pylist()
        exists = [
            left != NONE and (is_found or shape.how == "left") for left, is_found in zip(lefts, found, strict=True)
        ]
        keys = [answers.column(name) for name in response_key(shape)]
        left = Taken(versions.values, [left if here else None for left, here in zip(lefts, exists, strict=True)])
        rights = [row if here and found[row] else None for row, here in enumerate(exists)]
        names = shape.right.columns.names
        right = Taken(answers.select([f"right_{name}" for name in names]).rename_columns(names), rights)
        columns = shape.make_values(keys, left, right, shape.columns.names)
        hidden = [answers.column(name) for name in HIDDEN.names]
        deleted = pa.array([not here for here in exists], pa.bool_())
        return pa.Table.from_arrays([*columns, *hidden, deleted], schema=table_schema(shape.columns, shape.key))


def hash_of(value: bytes) -> bytes:
    """Which value of a left row a response is about."""
    return blake2b(value, digest_size=16).digest()
