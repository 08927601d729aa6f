"""RunStore: read-only access to a run's folder in a bucket, in OpenStack's object store, or on this machine; the record
that a node leaves there at the end of an incomplete job.
"""

import errno
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import Enum
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar
from urllib.parse import quote, unquote, urlsplit

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from gangway.components.core.blob_url import read_blob_url
from gangway.components.core.findings import GangwayError
from gangway.components.core.whole_files import whole_file
from gangway.images.node.safe_files import is_unsafe_name
from gangway.stacks.base.registry import get_provider
from gangway.trainer.core.regular_files import read_regular
from gangway.trainer.core.validation import first_mistake

if TYPE_CHECKING:
    from obstore.store import ObjectStore


class RunFailedError(GangwayError):
    """One item failed; the others continue."""


class Failure(Enum):
    """Why a run bucket could not be read.

    LASTING: no permission, or no such bucket; ends the run if it persists.
    LOGIN: this shell's login, or a cause that looks like it; does not end a run that was once visible.
    OUTAGE: the network or the service; temporary.
    ODD: not a failure: a file that no node of this version writes. The run may be fine.
    """

    LASTING = "lasting"
    LOGIN = "login"
    OUTAGE = "outage"
    ODD = "odd"


class StoreFailedError(GangwayError):
    """The run bucket could not be read, maybe temporarily."""

    def __init__(self, message: str, kind: Failure = Failure.LASTING) -> None:
        super().__init__(message)
        self.kind = kind


_TIMEOUT_SEC = 30.0
_PAGE = 1000
_DOMAINS = ("user_domain_name", "project_domain_name")
_SKIPPED = ("checkpoints/", "data/")
"""Folders that no table needs and that may fill a disk."""
_NO_BUCKET, _NO_PERMISSION, _NO_ANSWER = "no such bucket", "no permission to read it", "cannot be read"
_CLIENT = {"timeout": "30s", "connect_timeout": "10s"}
_REFUSED = re.compile(r"\b40[13]:? (Forbidden|Unauthorized)")
_MISSING = re.compile(r"\b404:? Not Found")
# An expired login, with any status: AWS's tokens and SSO, Google's, Azure's.
_ENDED = re.compile(r"expired|TokenRetrievalError|UnauthorizedSSOToken|invalid_grant|AADSTS", re.IGNORECASE)
_OUTAGE = re.compile(
    r"error sending request|connect|timed? ?out|\bdns\b|resolution|name or service|unreachable|\b50[0-4]\b",
    re.IGNORECASE,
)
_RETRIES = {"max_retries": 2, "retry_timeout": timedelta(seconds=20)}


class SwiftFolder:
    """Files below `swift://CONTAINER/FOLDER`; `cloud` names an entry of clouds.yaml, empty to use OS_* only."""

    def __init__(self, url: str, region: str, cloud: str) -> None:
        parts = urlsplit(url)
        self._container, self._folder = parts.netloc, f"{parts.path.strip('/')}/"
        self._store = _swift(region, cloud)

    def read(self, name: str, max_bytes: int | None = None) -> bytes | None:
        """See `_Files`. Also raises OSError."""
        from openstack.exceptions import raise_from_response

        with sdk_errors_as_oserror():
            path = quote(f"/{self._container}/{self._folder}{name}", safe="/")
            with self._store.get(path, stream=True, timeout=_TIMEOUT_SEC) as answer:
                if answer.status_code == 404:
                    raise FileNotFoundError(path)
                raise_from_response(answer)
                content: bytes = answer.content if max_bytes is None else answer.raw.read(max_bytes + 1)
        return None if max_bytes is not None and len(content) > max_bytes else content

    def names(self) -> list[str]:
        """See `_Files`. OSError: also if the container does not exist."""
        with sdk_errors_as_oserror():
            found = self._store.objects(self._container, prefix=self._folder, limit=_PAGE)
            return sorted(one.name.removeprefix(self._folder) for one in found)

    def sizes(self) -> Iterator[int]:
        """See `_Files`."""
        with sdk_errors_as_oserror():
            for one in self._store.objects(self._container, prefix=self._folder.lstrip("/"), limit=_PAGE):
                yield int(one.content_length or 0)


def openstack_cloud(region: str, cloud: str) -> Any:
    """The SDK's connection with this shell's login. Call it within `sdk_errors_as_oserror`."""
    import openstack
    from openstack.config import OpenStackConfig

    entry = OpenStackConfig().cloud_config["clouds"].get(cloud)
    login = entry["auth"] if entry else {name: os.environ.get(f"OS_{name.upper()}", "Default") for name in _DOMAINS}
    known: dict[str, Any] = {"cloud": cloud} if entry else {"load_yaml_config": False, "auth": login}
    if "application_credential_id" in login or "OS_APPLICATION_CREDENTIAL_ID" in os.environ:
        known["auth_type"] = "v3applicationcredential"
    return openstack.connect(region_name=region, **known)


def _swift(region: str, cloud: str) -> Any:
    from openstack.exceptions import ServiceDisabledException

    with sdk_errors_as_oserror():
        store = openstack_cloud(region, cloud).object_store
        try:
            store.get_endpoint()
        except ServiceDisabledException:
            raise OSError(f"no object store in region {region}") from None
        return store


@contextmanager
def sdk_errors_as_oserror() -> Iterator[None]:
    """Turns what the SDK raises into OSError, and hides its own warnings."""
    from keystoneauth1.exceptions import ClientException, MissingRequiredOptions
    from openstack.exceptions import ConfigException, HttpException, SDKException
    from requests import RequestException

    try:
        with warnings.catch_warnings():
            for category in (DeprecationWarning, PendingDeprecationWarning):  # between parts of the SDK
                warnings.filterwarnings("ignore", category=category)
            yield
    except (ConfigException, MissingRequiredOptions) as error:
        raise OSError(f"no login: clouds.yaml and OS_* are incomplete ({error})") from None
    except HttpException as error:
        raise OSError(f"{error.status_code} {HTTPStatus(error.status_code or 500).phrase}") from None
    except (ClientException, SDKException, RequestException) as error:
        raise OSError(str(error)) from None


Result = TypeVar("Result")

_FIXES = {
    _NO_BUCKET: "create it, or name another in the stack file; if the stack created it, it has been deleted since",
    _NO_PERMISSION: "log in with an account that may list and read it, such as the one that runs `up`",
    _NO_ANSWER: "try to read it with the cloud's command line, with the account that runs `up`",
}


def runs_url(provider: str, outputs: Mapping[str, Any], stack: str) -> str:
    """The URL of a stack's run: the output `runs_url`, else a folder of the run bucket named by stack and job."""
    if outputs.get("runs_url"):
        return str(outputs["runs_url"])
    store = get_provider(provider).settings.store
    scheme = "" if store is None else f"{store.scheme}://"
    base = str(outputs.get("run_bucket_url") or f"{scheme}{outputs['run_bucket']}").rstrip("/")
    # A base without scheme is a folder that machines and we share.
    return f"{'file://' if base.startswith('/') else ''}{base}/{stack}/{stack}"


def bucket_region(provider: str, region: str) -> str:
    """The region for RunStore; empty if the provider's buckets are not addressed by region."""
    return region if get_provider(provider).has_regional_buckets else ""


class _Files(Protocol):
    """Files below one place. Methods raise FileNotFoundError and other errors."""

    def read(self, name: str, max_bytes: int | None = None) -> bytes | None:
        """A file's content; None if it is larger than `max_bytes`."""

    def names(self) -> list[str]:
        """The names of all files."""

    def sizes(self) -> Iterator[int]:
        """The bytes of each file."""


class _Objects:
    def __init__(self, store: "ObjectStore") -> None:
        self._store = store

    def read(self, name: str, max_bytes: int | None = None) -> bytes | None:
        found = self._store.get(name)
        is_larger = max_bytes is not None and found.meta["size"] > max_bytes
        return None if is_larger else bytes(found.bytes())

    def names(self) -> list[str]:
        return sorted(found["path"] for page in self._store.list() for found in page)

    def sizes(self) -> Iterator[int]:
        return (int(found["size"]) for page in self._store.list() for found in page)


class _LocalFiles(_Objects):
    """Files on this machine; links, FIFOs and devices are refused."""

    def __init__(self, folder: Path, store: "ObjectStore") -> None:
        super().__init__(store)
        self._folder = folder

    def read(self, name: str, max_bytes: int | None = None) -> bytes | None:
        try:
            return read_regular(self._folder, name, 1 << 62 if max_bytes is None else max_bytes)
        except OSError as error:
            if error.errno == errno.EFBIG:
                return None
            raise


class RunStore:
    """One run's folder. `region`: of an S3 bucket (looked up if empty) or of OpenStack's object store."""

    def __init__(self, url: str, region: str = "", cloud: str = "") -> None:
        self.url, self.region, self.cloud = url.rstrip("/"), region, cloud
        self._files: _Files | None = None

    def read(self, name: str, max_bytes: int | None = None) -> bytes | None:
        """A file's content; None if it does not exist. StoreFailedError: also if it exceeds `max_bytes`."""
        try:
            content = self._call(lambda files: files.read(name, max_bytes))
        except FileNotFoundError:
            self.names()  # reading cannot tell a missing bucket from a missing file; listing can
            return None
        if content is None:
            message = f"{self.url}/{name}: more than {max_bytes:,} bytes; check what else writes there"
            raise StoreFailedError(message, Failure.ODD)
        return content

    def names(self) -> list[str]:
        """The names of all files. StoreFailedError: see `read`."""
        try:
            return self._call(lambda files: files.names())
        except FileNotFoundError:
            return []  # the run has not created the folder yet

    def sizes(self, most: int) -> list[int]:
        """The bytes of each of the first `most` files. StoreFailedError: see `read`."""
        try:
            return self._call(lambda files: list(islice(files.sizes(), most)))
        except FileNotFoundError:
            return []

    def copy(self, folder: Path) -> list[str]:
        """Copy all but checkpoints and data; their names. StoreFailedError; RunFailedError: a name leads outside."""
        # Names that end with a slash mark folders.
        found = [name for name in self.names() if not name.startswith(_SKIPPED) and not name.endswith("/")]
        wanted = [name for name in found if not is_unsafe_name(name)]
        for name in wanted:
            content = self.read(name)
            if content is not None:
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with whole_file(target) as file:
                    file.write(content)
        if refused := [name for name in found if is_unsafe_name(name)]:
            raise RunFailedError(
                f"{self.url}: {refused[0]!r} leads out of the folder and was not copied ({len(refused)} such names); "
                "the trainer writes no such names: check what else writes there"
            )
        return wanted

    def _call(self, call: Callable[[_Files], Result]) -> Result:
        """Open the store if necessary and call. StoreFailedError: any error but FileNotFoundError."""
        from botocore.exceptions import BotoCoreError
        from obstore.exceptions import BaseError

        try:
            if self._files is None:
                self._files = _open(self.url, self.region, self.cloud)
            return call(self._files)
        except FileNotFoundError:
            raise
        except (BaseError, BotoCoreError, OSError, ValueError) as error:
            first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            problem = _get_problem(error, first)
            kind = _get_failure(error, problem)
            raise StoreFailedError(f"{self.url}: {problem} ({first}); {_FIXES[problem]}", kind) from None


def _get_failure(error: Exception, problem: str) -> Failure:
    """Only a refusal, a missing bucket and an invalid address certainly last."""
    # Obstore's messages contain its settings, such as "retry_timeout".
    message = f"{type(error).__name__}: {error}".replace("retry_timeout", "")
    if _ENDED.search(message):
        return Failure.LOGIN
    if problem != _NO_ANSWER:
        return Failure.LOGIN if re.search(r"\b401\b|Unauthenticated", message) else Failure.LASTING
    if isinstance(error, ValueError):
        return Failure.LASTING
    return Failure.OUTAGE if _OUTAGE.search(message) else Failure.LOGIN


def _get_problem(error: Exception, message: str) -> str:
    """What an error means. For listings, obstore has one error type with the HTTP status in the message."""
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or _REFUSED.search(message):
        return _NO_PERMISSION
    return _NO_BUCKET if _MISSING.search(message) else _NO_ANSWER


def _open(url: str, region: str, cloud: str) -> _Files:
    if url.startswith("swift://"):
        return SwiftFolder(url, region, cloud)
    store = object_store(url, region)
    return _LocalFiles(_path(url), store) if url.startswith("file://") else _Objects(store)


def object_store(url: str, region: str) -> "ObjectStore":
    """Open a folder of a bucket or of this machine with this shell's credentials."""
    from obstore import store

    scheme = url.partition("://")[0]
    plain_http = any(os.environ.get(f"{cloud}_ALLOW_HTTP") == "true" for cloud in ("AWS", "GOOGLE", "AZURE"))
    common: dict[str, Any] = {"client_options": {**_CLIENT, "allow_http": plain_http}, "retry_config": _RETRIES}
    if scheme == "file":
        folder = _path(url)
        if not folder.is_dir():
            raise FileNotFoundError(folder)
        return store.LocalStore(folder)
    if scheme == "s3":
        return store.S3Store.from_url(url, **common, **_aws(region or _bucket_region(urlsplit(url).netloc)))
    if scheme == "gs":
        return store.GCSStore.from_url(url, **common)
    if scheme == "az":  # obstore's az:// has no account
        url = read_blob_url(url, "run store").https
    has_login = any(os.environ.get(f"AZURE_{name}") for name in ("CLIENT_ID", "STORAGE_ACCOUNT_KEY", "STORAGE_SAS_KEY"))
    use_cli: dict[str, Any] = {} if has_login or os.environ.get("AZURE_SKIP_SIGNATURE") else {"use_azure_cli": True}
    return store.AzureStore.from_url(url, **common, **use_cli)


def _path(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def _aws(region: str) -> dict[str, Any]:
    """Credentials from boto3: obstore reads neither profiles nor SSO."""
    import boto3
    from obstore.auth.boto3 import Boto3CredentialProvider

    session = boto3.Session()
    found = {"region": region} if region else {}
    return {**found, "credential_provider": Boto3CredentialProvider(session)} if session.get_credentials() else found


def _bucket_region(bucket: str) -> str:
    """A bucket's region, which S3 tells even unauthorized callers; empty if unknown."""
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config
    from botocore.exceptions import ClientError

    session = boto3.Session()
    unsigned = {} if session.get_credentials() else {"signature_version": UNSIGNED}
    config = Config(connect_timeout=10, read_timeout=30, retries={"total_max_attempts": 2}, **unsigned)
    client = session.client("s3", region_name=session.region_name or "us-east-1", config=config)
    try:
        answer = client.head_bucket(Bucket=bucket)
    except ClientError as refused:
        answer = refused.response
    headers = answer["ResponseMetadata"].get("HTTPHeaders", {})
    return str(headers.get("x-amz-bucket-region", "") or session.region_name or "")


ENDED_FILE = "ended.json"
_MAX_BYTES = 4096
"""Many times the size of a real record; anything larger is a foreign file."""
_MAX_CLOCK_SKEW = timedelta(minutes=2)
"""How far a node's clock may lag behind this machine's. At most the shortest time from `up` to an attempt's end, or the
end of an attempt would also count for one started right after it."""
_NAME = r"^[A-Za-z0-9._-]*$"
_MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "bad-input": "its input is invalid, or does not work on these GPUs",
        "idle": "every GPU of all nodes was idle, so its nodes left (gangway:cluster.idle_stop)",
        "fabric-too-slow": "the all-reduce before the job was below gangway:cluster.fabric_check",
        "max-hours": "it reached max_hours, counted while a node was up, or budget.limits.job_usd, before it was done",
        "too-many-failures": "it failed repeatedly, on every node or on the maximum number of nodes",
    }
)


class NodeRecord(BaseModel):
    """What a node of a stack puts into a run's folder. `run_id`: empty if unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    version: Literal[1]
    run_id: str = Field(pattern=_NAME, max_length=100)
    stack: str = Field(pattern=_NAME, max_length=100)
    node: str = Field(pattern=_NAME, max_length=255)
    time: AwareDatetime


class EndedRecord(NodeRecord):
    """The end of an incomplete job. `code`: the trainer's exit status."""

    code: int = Field(ge=1, le=255)
    reason: str = Field(pattern=r"^[a-z][a-z-]{0,39}$")

    def __str__(self) -> str:
        meaning = _MEANINGS.get(self.reason, "a reason unknown to this version")
        return (
            f"the job ended on {self.node}, {self.time.astimezone(UTC):%Y-%m-%d %H:%M} UTC: "
            f"{self.reason}, exit code {self.code}: {meaning}; see docs/troubleshooting.md, 'The job ended early'"
        )


class _Owner(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    run_id: str


def check_not_ended(store: RunStore, run_id: str, began: datetime | None = None) -> None:
    """RunFailedError: the run has ended for good since `began` (None: ever), and why. StoreFailedError."""
    ended = read_end(store, run_id)
    if ended is not None and (began is None or ended.time >= began - _MAX_CLOCK_SKEW):
        raise RunFailedError(str(ended))


def read_end(store: RunStore, run_id: str | None = None) -> EndedRecord | None:
    """The end in a run's folder, of `run_id` if given; else None. StoreFailedError: unreadable, or ODD: not an end."""
    content = store.read(ENDED_FILE, _MAX_BYTES)
    if content is None or (run_id is not None and _is_of_another_run(content, run_id)):
        return None
    try:
        return EndedRecord.model_validate_json(content)
    except ValidationError as error:
        raise StoreFailedError(
            f"{store.url}/{ENDED_FILE}: not written by a node of this version: {first_mistake(error)}; "
            "check what else writes there",
            Failure.ODD,
        ) from None


def _is_of_another_run(content: bytes, run_id: str) -> bool:
    """Ignores other fields: nodes of another version may write more."""
    try:
        return _Owner.model_validate_json(content).run_id != run_id
    except ValidationError:
        return False
