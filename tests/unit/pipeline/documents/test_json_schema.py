"""Documents that fit a JSON Schema, and documents that do not."""

from typing import Any

import pytest

from ottla.pipeline.documents.json_schema import check_document

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 5, "pattern": "^[a-z]+$"},
        "age": {"type": "integer", "minimum": 0, "exclusiveMaximum": 150},
        "mail": {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/mail"}]},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2, "uniqueItems": True},
    },
    "required": ["name"],
    "additionalProperties": False,
    "definitions": {"mail": {"type": "string", "pattern": "@"}},
}


@pytest.mark.parametrize(
    "document",
    [
        {"name": "ann"},
        {"name": "ann", "age": 3.0, "mail": None, "tags": []},
        {"name": "b", "mail": "b@c", "tags": ["a", "b"]},
    ],
)
def test_documents_that_fit(document: Any) -> None:
    check_document(document, PERSON)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ([], "value: .* is not of type object"),
        ({}, "value.name is missing, and the schema requires it"),
        ({"name": ""}, "value.name has 0 characters, fewer than 1"),
        ({"name": "abcdef"}, "value.name has 6 characters, more than 5"),
        ({"name": "A"}, "value.name: 'A' does not match"),
        ({"name": "a", "age": -1}, "value.age: -1 is not at least 0"),
        ({"name": "a", "age": 150}, "value.age: 150 is not less than 150"),
        ({"name": "a", "age": 1.5}, "value.age: 1.5 is not of type integer"),
        ({"name": "a", "age": True}, "value.age: True is not of type integer"),
        ({"name": "a", "mail": "x"}, "value.mail: "),
        ({"name": "a", "tags": ["c"]}, r"value.tags\[0\]: 'c' is none of 'a', 'b'"),
        ({"name": "a", "tags": ["a", "a"]}, "value.tags has an item twice"),
        ({"name": "a", "more": 1}, "value.more is not allowed by the schema"),
    ],
)
def test_documents_that_do_not_fit(document: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check_document(document, PERSON)


@pytest.mark.parametrize(
    ("document", "schema", "fits"),
    [
        (3, {"anyOf": [{"type": "string"}, {"minimum": 2}]}, True),
        (1, {"anyOf": [{"type": "string"}, {"minimum": 2}]}, False),
        (1, {"oneOf": [{"minimum": 0}, {"minimum": 1}]}, False),
        (1, {"not": {"type": "integer"}}, False),
        (1, {"allOf": [{"minimum": 0}, {"multipleOf": 2}]}, False),
        (0.3, {"multipleOf": 0.1}, True),
        (1, {"const": True}, False),
        ([1, "a"], {"prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, True),
        ([1, 2], {"items": [{"type": "integer"}], "additionalItems": {"type": "string"}}, False),
        ({"x1": 1}, {"patternProperties": {"^x": {"type": "string"}}}, False),
        (1, True, True),
        (1, False, False),
        ({"next": {"next": {"next": 1}}}, {"properties": {"next": {"$ref": "#"}}, "type": "object"}, False),
        (1, {"$ref": "#/nowhere", "format": "email"}, True),
    ],
)
def test_keywords(document: Any, schema: Any, fits: bool) -> None:
    if fits:
        check_document(document, schema)
        return
    with pytest.raises(ValueError):
        check_document(document, schema)
