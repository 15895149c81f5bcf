"""The requests that connectors send to a bucket, and what their failures mean.

boto3 is imported where a connection is made, so that everything else works without it.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from ottla.connect.errors import BadConfig, ConnectError, RetriableError
from ottla.connect.settings.definition import Password

T = TypeVar("T")

_ABSENT: Final = frozenset({"404", "NoSuchKey", "NotFound", "NoSuchUpload"})
_LOST_RACES: Final = frozenset({"412", "PreconditionFailed"})
_BUSY: Final = frozenset(
    {"409", "ConditionalRequestConflict", "OperationAborted", "RequestTimeout", "SlowDown", "Throttling", "429"}
)


class Upload(NamedTuple):
    """An object whose content is in the bucket, but which nobody sees until the upload is completed."""

    key: str
    upload_id: str
    etags: Sequence[str]
    """Of its parts."""


@dataclass(frozen=True)
class BucketAddress:
    """A bucket and how to reach it. It is pickled with the connector; processes connect when they use it."""

    bucket: str
    region: str
    endpoint: str | None = None
    access_key: str | None = None
    secret_key: Password | None = field(default=None, repr=False)
    proxy: str | None = None
    is_path_style: bool = True
    retries: int = 3


@functools.cache
def connect(address: BucketAddress) -> Any:
    """boto3's client. It is made once in a process, for that takes longer than most batches."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise BadConfig("S3 connectors need boto3: pip install 'ottla[connect]'") from None
    config = Config(
        region_name=address.region,
        retries={"total_max_attempts": address.retries + 1, "mode": "standard"},
        s3={"addressing_style": "path" if address.is_path_style else "auto"},
        proxies={"http": address.proxy, "https": address.proxy} if address.proxy else None,
    )
    return boto3.session.Session().client(
        "s3",
        config=config,
        endpoint_url=address.endpoint,
        aws_access_key_id=address.access_key,
        aws_secret_access_key=None if address.secret_key is None else str(address.secret_key),
    )


class Bucket:
    def __init__(self, address: BucketAddress, options: Mapping[str, Any] | None = None) -> None:
        self._address = address
        self._options = dict(options or {})
        """Of new objects: encryption, access control."""

    def check(self) -> None:
        """ConnectError if the bucket is not there, or is not for us."""
        if self._ask("look for the bucket", lambda client: client.head_bucket(**self._name)) is None:
            raise ConnectError(f"s3.bucket.name: there is no bucket {self._address.bucket!r}")

    def get(self, key: str) -> tuple[bytes, str] | None:
        """Content and ETag."""

        def read(client: Any) -> tuple[bytes, str]:
            found = client.get_object(**self._name, Key=key)
            return found["Body"].read(), found["ETag"]

        return self._ask(f"read {key}", read)

    def put_if(self, key: str, data: bytes, etag: str | None) -> str | None:
        """Write an object if it has still this ETag, None for one that does not exist. Returns the new ETag, None if
        the object is another one. After a lost answer a repetition may find what it has written itself."""
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}

        def put(client: Any) -> str:
            written = client.put_object(**self._name, **self._options, **condition, Key=key, Body=data)
            return str(written["ETag"])

        return self._ask(f"write {key}", put)

    def upload(self, key: str, data: bytes, part_size: int) -> Upload:
        """Bring the content of an object to the bucket. `complete` lets readers see it."""

        def send(client: Any) -> Upload:
            upload = client.create_multipart_upload(**self._name, **self._options, Key=key)["UploadId"]
            etags: list[str] = []
            for first in range(0, max(len(data), 1), part_size):
                part = client.upload_part(
                    **self._name,
                    Key=key,
                    UploadId=upload,
                    PartNumber=len(etags) + 1,
                    Body=data[first : first + part_size],
                )
                etags.append(part["ETag"])
            return Upload(key, upload, etags)

        found = self._ask(f"write {key}", send)
        if found is None:
            raise RetriableError(f"S3: the upload of {key} was aborted by somebody else")
        return found

    def complete(self, upload: Upload) -> None:
        """Let readers see the object. It may be repeated."""
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(upload.etags, 1)]

        def finish(client: Any) -> Any:
            return client.complete_multipart_upload(
                **self._name, Key=upload.key, UploadId=upload.upload_id, MultipartUpload={"Parts": parts}
            )

        if self._ask(f"complete {upload.key}", finish) is None and not self._exists(upload.key):
            raise ConnectError(
                f"S3: the upload of {upload.key} was aborted before it was completed; its records are lost unless the"
                " position of the sink is set back. Does a rule of the bucket abort uploads too early?"
            )

    def _exists(self, key: str) -> bool:
        return self._ask(f"look for {key}", lambda client: client.head_object(**self._name, Key=key)) is not None

    def abort(self, upload: Upload) -> None:
        def stop(client: Any) -> Any:
            return client.abort_multipart_upload(**self._name, Key=upload.key, UploadId=upload.upload_id)

        self._ask(f"abort the upload of {upload.key}", stop)

    def list_uploads(self, prefix: str) -> list[Upload]:
        """Uploads that were neither completed nor aborted."""

        def read(client: Any) -> list[Upload]:
            pages = client.get_paginator("list_multipart_uploads").paginate(**self._name, Prefix=prefix)
            return [Upload(each["Key"], each["UploadId"], ()) for page in pages for each in page.get("Uploads") or ()]

        return self._ask("list uploads", read) or []

    def list_objects(self, prefix: str) -> Iterator[tuple[str, int, str]]:
        """Key, size and ETag of the objects, by their keys."""

        def read(client: Any) -> list[tuple[str, int, str]]:
            pages = client.get_paginator("list_objects_v2").paginate(**self._name, Prefix=prefix)
            return [(each["Key"], each["Size"], each["ETag"]) for page in pages for each in page.get("Contents") or ()]

        yield from self._ask("list objects", read) or ()

    @property
    def _name(self) -> dict[str, str]:
        return {"Bucket": self._address.bucket}

    def _ask(self, what: str, request: Callable[[Any], T]) -> T | None:
        """The answer; None if the thing does not exist or is not as the request supposed."""
        client = connect(self._address)
        from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError

        try:
            return request(client)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code in _ABSENT or code in _LOST_RACES:
                return None
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            message = error.response.get("Error", {}).get("Message", code)
            text = f"S3: cannot {what} in {self._address.bucket}: {message}"
            is_away = status >= 500 and code != "NotImplemented"
            raise (RetriableError if is_away or code in _BUSY else ConnectError)(f"{text} ({code})") from None
        except (HTTPClientError, ConnectionError) as error:
            raise RetriableError(f"S3: cannot {what} in {self._address.bucket}: {error}") from None
        except BotoCoreError as error:
            raise ConnectError(f"S3: cannot {what} in {self._address.bucket}: {error}") from None
