"""Classes of Protobuf messages, made from descriptors, and the indexes that say which message of its schema a value is.

google.protobuf makes the classes; it is installed with the `spark` extra.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ottla.pipeline.formats.avro_reading import Unreadable, read_long
from ottla.pipeline.formats.avro_writing import write_long

_INDEXES_MAX = 100


def find_message_class(descriptors: Sequence[bytes], message: str) -> Any:
    """The class of the message with this full name. `descriptors` are serialized FileDescriptorProtos, each after those
    it imports. ValueError with one line if the message is not in them."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    files = [descriptor_pb2.FileDescriptorProto.FromString(each) for each in descriptors]
    given = {each.name for each in files}
    for each in files:
        for name in each.dependency:
            if name not in given:
                given.add(name)
                pool.AddSerializedFile(_load_well_known(name))
        try:
            pool.Add(each)
        except TypeError as error:
            raise ValueError(f"Protobuf: {error}; was protoc run with --include_imports?") from None
    try:
        found = pool.FindMessageTypeByName(message)
    except KeyError:
        raise ValueError(f"Protobuf: the descriptors have no message {message!r}") from None
    return message_factory.GetMessageClass(found)


def _load_well_known(name: str) -> bytes:
    """The descriptor of a file that comes with Protobuf, such as timestamp.proto. Registries do not have these
    files."""
    module = name.removeprefix("google/protobuf/").removesuffix(".proto")
    try:
        found = import_module(f"google.protobuf.{module}_pb2")
    except ModuleNotFoundError:
        raise ValueError(f"Protobuf: the descriptors import {name}, which is not among them") from None
    serialized: bytes = found.DESCRIPTOR.serialized_pb
    return serialized


def read_indexes(value: bytes, position: int) -> tuple[tuple[int, ...], int]:
    """Which message of its schema a Protobuf value is, and the position where the message begins. Unreadable or
    IndexError if the value does not say it."""
    count, position = read_long(value, position)
    if not 0 <= count <= _INDEXES_MAX:
        raise Unreadable(f"{count} indexes")
    indexes = []
    for _ in range(count):
        index, position = read_long(value, position)
        indexes.append(index)
    return tuple(indexes) or (0,), position


def message_at(file: bytes, indexes: tuple[int, ...]) -> str:
    """The full name of the message with these indexes."""
    from google.protobuf import descriptor_pb2

    parsed = descriptor_pb2.FileDescriptorProto.FromString(file)
    names, messages = [parsed.package] if parsed.package else [], parsed.message_type
    for index in indexes:
        if not 0 <= index < len(messages):
            raise ValueError(f"it has no message {indexes}")
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)


def write_indexes(indexes: tuple[int, ...]) -> bytes:
    """What `read_indexes` reads. The first message is a single zero."""
    if indexes == (0,):
        return b"\0"
    buffer = bytearray()
    for number in (len(indexes), *indexes):
        write_long(number, buffer)
    return bytes(buffer)


def find_message_indexes(files: list[bytes], message: str) -> tuple[int, ...]:
    """Where the last file defines the message: its index, and those of the messages it is nested in, outermost first.
    This is how a value that is written with a schema registry says which message it is."""
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto.FromString(files[-1])
    names = message.removeprefix(f"{file.package}." if file.package else "").split(".")
    found: list[int] = []
    messages = file.message_type
    for name in names:
        place = next((at for at, each in enumerate(messages) if each.name == name), None)
        if place is None:
            raise ValueError(f"Protobuf: the last file of the descriptors does not define the message {message!r}")
        found.append(place)
        messages = messages[place].nested_type
    return tuple(found)
