"""How far a sink has written, in objects of its bucket.

A ledger is replaced as a whole, on the condition that it is still the one that was read (`If-Match`, or
`If-None-Match: *` for the first). A new owner raises `epoch`: whoever has read the ledger before that cannot replace it
any more, and whoever reads it later sees that another one owns it.
"""

import json
from dataclasses import asdict
from typing import Any

from ottla.connect.connectors.files.ledger import Ledger, NotOwner
from ottla.connect.connectors.s3.bucket import Bucket
from ottla.connect.errors import ConnectError, RetriableError


class Replaced(RetriableError):
    """Another task of the same run has replaced the ledger."""


class LedgerObject:
    """The ledger at a key, as it was read last."""

    def __init__(self, bucket: Bucket, key: str, owner: str) -> None:
        """`owner` is different for every run of a connector."""
        self._bucket = bucket
        self._key = key
        self._owner = owner
        self._etag: str | None = None
        self._claims = 0
        """Counts calls of `claim`: a task that has read the ledger before one of them cannot replace it."""
        self.ledger = Ledger()

    def load(self) -> None:
        found = self._bucket.get(self._key)
        self.ledger, self._claims, self._etag = Ledger(), 0, None
        if found is not None:
            fields, self._etag = self._parse(found[0]), found[1]
            self._claims = fields["claims"]
            self.ledger = Ledger(fields["epoch"], fields["positions"], fields["intent"])

    def _parse(self, data: bytes) -> dict[str, Any]:
        try:
            fields: dict[str, Any] = json.loads(data)
            missing = {"owner", "claims", "epoch", "positions", "intent"} - fields.keys()
        except (ValueError, AttributeError):
            missing = {"JSON"}
        if missing:
            text = f"{self._key} is damaged: no {', '.join(sorted(missing))}; it says up to where the sink has written"
            raise ConnectError(text)
        return fields

    def load_as(self, epoch: int) -> None:
        """NotOwner if another run has claimed the ledger."""
        self.load()
        if self.ledger.epoch != epoch:
            raise self._not_owner()

    def save(self) -> None:
        """NotOwner if another run has replaced the ledger since it was loaded, Replaced if this one has."""
        data = json.dumps({"owner": self._owner, "claims": self._claims, **asdict(self.ledger)}).encode()
        etag = self._bucket.put_if(self._key, data, self._etag)
        if etag is None:  # or it is ours, if an answer was lost and the request was repeated
            found = self._bucket.get(self._key)
            if found is None or self._parse(found[0])["owner"] != self._owner:
                raise self._not_owner()
            if found[0] != data:
                raise Replaced(f"{self._key}: another task of the same run has written")
            etag = found[1]
        self._etag = etag

    def claim(self, epoch: int | None = None) -> int:
        """Shut out earlier owners. Returns the epoch of the new one, which may be given if another ledger knows it.

        Raises NotOwner if the given epoch is lower than that of the owner.
        """
        while True:
            self.load()
            wanted = self.ledger.epoch + 1 if epoch is None else epoch
            if wanted < self.ledger.epoch:
                raise self._not_owner()
            self.ledger.epoch = wanted
            self._claims += 1
            try:
                self.save()
            except (NotOwner, Replaced):  # somebody was faster once more
                continue
            return wanted

    def check_conditions(self) -> None:
        """ConnectError if the store ignores the conditions of requests: two runs could both believe to own a ledger."""
        found = self._bucket.get(self._key)
        if found is not None and any(self._bucket.put_if(self._key, found[0], etag) for etag in (None, '"0"')):
            raise ConnectError("S3: the store ignores If-Match or If-None-Match, which the sink needs to write once")

    def _not_owner(self) -> NotOwner:
        return NotOwner(f"{self._key}: another run of the connector has taken over")
