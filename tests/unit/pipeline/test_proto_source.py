"""The source of .proto files: what protoc makes of it, values that are read with it, and what is refused."""

import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.formats.proto_source import DEPTH_MAX, parse_source
from ottla.pipeline.formats.protobuf_messages import find_message_class, message_at
from tests.needs import require_program

MODERN = """// A remark, and /* another */
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
import public "google/protobuf/wrappers.proto";
option java_package = "org.shop"; option optimize_for = SPEED;
option (my.own) = { text: "a { b" list: [1, 2] };

message Order {
  reserved 4, 9 to 11; reserved "old";
  option deprecated = true;
  uint64 id = 1 [deprecated = true, (my.field).level = -3];
  optional string note = 2;
  repeated Line lines = 3;
  map<string, Line> by_name = 0x5;
  map<int32, .shop.v1.State> states = 6;
  oneof payment { string card = 7; int64 cash = 8 [json_name = "money"]; }
  google.protobuf.Timestamp at = 12;
  message Line { sint32 amount = 1; Order.Line.Deep deep = 2; message Deep { bytes raw = 1; } }
  State state = 13;
  repeated int32 unpacked = 14 [packed = false];
  google.protobuf.StringValue wrapped = 15;
  optional Line first = 16;
}
enum State { option allow_alias = true; reserved 7; UNKNOWN = 0; PAID = 1 [(x) = "y"]; DONE = 0x1; OWED = -1; }
service Shop { rpc Buy (Order) returns (stream Order) { option (http) = { post: "/x" }; } }
message Second { Order order = 1; message Inner { float f = 1; } }
"""
OLD = """syntax = "proto2";
message Item {
  required int32 number = 1 [default = -010];
  optional string name = 2 [default = "a\\x41\\n" '\\'"'];
  optional bytes raw = 3 [default = "\\001\\\\\\"x"];
  optional double far = 4 [default = -inf];
  optional float near = 5 [default = 1.5e3];
  optional Kind kind = 6 [default = B];
  optional bool flag = 7 [default = true];
  repeated group Part = 8 { optional int32 size = 1; }
  oneof choice { group Other = 9 { optional int32 a = 1; } int32 plain = 10; }
  enum Kind { A = 1; B = 2; }
  extensions 100 to 199, 500 to max;
  extend Item { optional int32 inside = 150; }
}
extend Item { optional string outside = 100; repeated group Added = 101 { optional int32 b = 1; } }
"""


def normalize(file: descriptor_pb2.FileDescriptorProto) -> Any:
    """With full names, as a pool resolves them, and without what only says how code is generated."""
    pool = descriptor_pool.DescriptorPool()
    for module in ("descriptor", "timestamp", "wrappers"):
        pool.AddSerializedFile(__import__(f"google.protobuf.{module}_pb2", fromlist=["x"]).DESCRIPTOR.serialized_pb)
    file.name = "x.proto"
    pool.Add(file)
    found = descriptor_pb2.FileDescriptorProto()
    pool.FindFileByName("x.proto").CopyToProto(found)
    del found.service[:]
    found.ClearField("source_code_info")
    for message in found.message_type:
        _tidy(message)
    for field in found.extension:
        field.ClearField("json_name")
    return MessageToDict(found)


def _tidy(message: descriptor_pb2.DescriptorProto) -> None:
    message.ClearField("reserved_range")
    message.ClearField("reserved_name")
    for field in (*message.field, *message.extension):
        if field.json_name != "money":  # the others follow from the names, and protoc writes them all
            field.ClearField("json_name")
    for enum in message.enum_type:
        enum.ClearField("reserved_range")
    nested = sorted(message.nested_type, key=lambda each: each.name)
    del message.nested_type[:]
    message.nested_type.extend(nested)
    for each in message.nested_type:
        _tidy(each)


@pytest.mark.parametrize("source", [MODERN, OLD], ids=["proto3", "proto2"])
def test_descriptors_are_those_of_protoc(source: str, tmp_path: Path) -> None:
    protoc = require_program("protoc")
    plain = source.replace('(my.own) = { text: "a { b" list: [1, 2] }', "cc_enable_arenas = true")
    for own in (", (my.field).level = -3", ' [(x) = "y"]', ' { option (http) = { post: "/x" }; }'):
        plain = plain.replace(own, ";" if "http" in own else "")
    (tmp_path / "x.proto").write_text(plain)
    for name, message in (("timestamp", "Timestamp"), ("wrappers", "StringValue")):  # not installed with every protoc
        imported = tmp_path / "google" / "protobuf" / f"{name}.proto"
        imported.parent.mkdir(parents=True, exist_ok=True)
        imported.write_text(f'syntax = "proto3"; package google.protobuf; message {message} {{}}')
    target = tmp_path / "set"
    subprocess.run([protoc, f"-I{tmp_path}", f"--descriptor_set_out={target}", "x.proto"], check=True, cwd=tmp_path)
    (theirs,) = descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes()).file
    wanted, found = normalize(theirs), normalize(parse_source(plain))
    for each in (wanted, found):
        for enum in each.get("enumType", ()):
            enum.pop("reservedRange", None)
    assert found == wanted
    normalize(parse_source(source))  # options of the user's own change nothing


def test_values_are_read() -> None:
    # Presence, maps, oneofs, nested messages, enums, 64-bit numbers.
    file = parse_source(MODERN)
    file.name = "schema.proto"
    order = find_message_class([file.SerializeToString()], "shop.v1.Order")
    value = (
        b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + b"\x12\x00" + b"\x1a\x02\x08\x05"
        b"\x2a\x07\x0a\x01k\x12\x02\x08\x03" + b"\x40\x07" + b"\x68\x01" + b"\x70\x01\x70\x02"
    )
    document = MessageToDict(order.FromString(value), preserving_proto_field_name=True)
    assert document == {
        "id": "18446744073709551615",
        "note": "",
        "lines": [{"amount": -3}],
        "by_name": {"k": {"amount": -2}},
        "cash": "7",
        "state": "PAID",
        "unpacked": [1, 2],
    }
    assert message_at(file.SerializeToString(), (0, 0, 0)) == "shop.v1.Order.Line.Deep"  # maps are not counted
    assert message_at(file.SerializeToString(), (1, 0)) == "shop.v1.Second.Inner"


def test_editions() -> None:
    source = 'edition = "2023"; option features.field_presence = IMPLICIT; message A { int32 a = 1; reserved b, c; }'
    file = parse_source(source)
    file.name = "schema.proto"
    found = find_message_class([file.SerializeToString()], "A")
    assert not found.DESCRIPTOR.fields_by_name["a"].has_presence


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("message A {", "line 1: the end where more must be"),
        ("message A { int32 a = 1 }", "line 1: '}' where ';' must be"),
        ("\n\nmessage { }", "line 3: '{' where a name must be"),
        ("message A { int32 a = b; }", "line 1: 'b' where a number must be"),
        ("message A { int32 a = 1.5; }", "line 1: '1.5' where a whole number must be"),
        ("message A { int32 a = 99999999999; }", "line 1: '99999999999' where a number of 32 bits must be"),
        ('syntax = "proto9";', "syntax 'proto9' is neither proto2 nor proto3"),
        ('edition = "9999";', "edition '9999' is not known"),
        ("hello", "line 1: 'hello' where a message, an enum or an import must be"),
        ('{"type": "record"}', "line 1: '{' where a message"),
        ("message A { /* no end", "line 1: '* no end' is not Protobuf"),
        ("\x00", "line 1: '\\x00' is not Protobuf"),
        ("option optimize_for = NEVER;", "option optimize_for cannot be 'NEVER'"),
        ("message A {" * (DEPTH_MAX + 1) + "}" * (DEPTH_MAX + 1), "messages are nested deeper than"),
    ],
)
def test_what_is_no_proto_file_is_refused_in_one_line(source: str, reason: str) -> None:
    with pytest.raises(ValueError) as raised:
        parse_source(source)
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)


@given(st.data())
def test_damaged_sources_raise_nothing_else(data: st.DataObject) -> None:
    source = data.draw(st.sampled_from([MODERN, OLD]))
    start = data.draw(st.integers(0, len(source)))
    end = data.draw(st.integers(start, min(len(source), start + 30)))
    middle = data.draw(st.text(alphabet='{}[]()<>;=,."\\-1ax ', max_size=5))
    with suppress(ValueError):
        parse_source(source[:start] + middle + source[end:])
