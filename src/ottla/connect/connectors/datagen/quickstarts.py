"""Schemas by the names of Confluent's Datagen connector, with the field that is the key."""

from typing import Any, Final


def _record(name: str, **fields: Any) -> dict[str, Any]:
    found = [{"name": each, "type": kind} for each, kind in fields.items()]
    return {"type": "record", "namespace": "ksql", "name": name, "fields": found}


def _value(kind: str, **properties: Any) -> dict[str, Any]:
    return {"type": kind, "arg.properties": properties}


def _text(pattern: str) -> dict[str, Any]:
    return _value("string", regex=pattern)


def _one_of(*options: str) -> dict[str, Any]:
    return _value("string", options=list(options))


def _number(kind: str, least: float, end: float) -> dict[str, Any]:
    return _value(kind, range={"min": least, "max": end})


def _count(kind: str, start: int, step: int = 1) -> dict[str, Any]:
    return _value(kind, iteration={"start": start, "step": step})


QUICKSTARTS: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "users": (
        _record(
            "users",
            registertime=_number("long", 1_487_715_775_521, 1_519_273_364_600),
            userid=_text("User_[1-9]"),
            regionid=_text("Region_[1-9]"),
            gender=_one_of("MALE", "FEMALE", "OTHER"),
        ),
        "userid",
    ),
    "pageviews": (
        _record(
            "pageviews",
            viewtime=_count("long", 1, 10),
            userid=_text("User_[1-9]"),
            pageid=_text("Page_[1-9][0-9]?"),
        ),
        "viewtime",
    ),
    "orders": (
        _record(
            "orders",
            ordertime=_number("long", 1_487_715_775_521, 1_519_273_364_600),
            orderid=_count("int", 0),
            itemid=_text("Item_[1-9][0-9]{0,2}"),
            orderunits=_number("double", 0.1, 10.0),
            address=_record(
                "address",
                city=_text("City_[1-9][0-9]?"),
                state=_text("State_[1-9][0-9]?"),
                zipcode=_number("long", 10_000, 99_999),
            ),
        ),
        "orderid",
    ),
    "ratings": (
        _record(
            "ratings",
            rating_id=_count("long", 1),
            user_id=_number("int", 0, 20),
            stars=_number("int", 1, 6),
            route_id=_number("int", 0, 10_000),
            rating_time=_count("long", 1, 10),
            channel=_one_of("web", "iOS", "Android", "iOS-test"),
            message=_one_of(
                "the seat was too small",
                "on time, thank you",
                "where is my luggage?",
                "friendly crew",
                "would fly again",
            ),
        ),
        "rating_id",
    ),
    "stock_trades": (
        _record(
            "StockTrade",
            side=_one_of("BUY", "SELL"),
            quantity=_number("int", 1, 5001),
            symbol=_one_of("ZBZX", "ZJZZT", "ZTEST", "ZVV", "ZVZZT", "ZWZZT", "ZXZZT"),
            price=_number("int", 5, 1000),
            account=_one_of("ABC123", "LMN456", "XYZ789"),
            userid=_text("User_[1-9]"),
        ),
        "symbol",
    ),
}
