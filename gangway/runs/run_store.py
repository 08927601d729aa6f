"""RunStore: the folder of a bucket, of OpenStack's object store, or of this machine, in which a run's files appear.
Read only.
"""

import errno
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import quote, unquote, urlsplit

from components.core.blob_url import read_blob_url
from components.core.whole_files import whole_file
from gangway.runs.errors import Failure, RunFailedError, StoreFailedError
from images.node.safe_files import is_unsafe_name
from stacks.base.registry import get_provider
from trainer.core.regular_files import read_regular

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_TIMEOUT_SEC = 30.0
_PAGE = 1000
_ANY_SIZE = 1 << 62
_DOMAINS = ("user_domain_name", "project_domain_name")
_LEFT_OUT = ("checkpoints/", "data/")
"""What a table does not need, and what may be as large as a disk."""
_NO_BUCKET, _NO_PERMISSION, _NO_ANSWER = "there is no such bucket", "no permission to read it", "cannot be read"
_CLIENT = {"timeout": "30s", "connect_timeout": "10s"}
_REFUSED = re.compile(r"\b40[13]:? (Forbidden|Unauthorized)")
_MISSING = re.compile(r"\b404:? Not Found")
# An ended login, whatever status it comes with: AWS's tokens and SSO, Google's, Azure's.
_ENDED = re.compile(r"expired|TokenRetrievalError|UnauthorizedSSOToken|invalid_grant|AADSTS", re.IGNORECASE)
_OUTAGE = re.compile(
    r"error sending request|connect|timed? ?out|\bdns\b|resolution|name or service|unreachable|\b50[0-4]\b",
    re.IGNORECASE,
)
_RETRIES = {"max_retries": 2, "retry_timeout": timedelta(seconds=20)}


class SwiftFolder:
    """What lies below `swift://CONTAINER/FOLDER`; `cloud` names an entry of clouds.yaml, empty for OS_* alone."""

    def __init__(self, url: str, region: str, cloud: str) -> None:
        parts = urlsplit(url)
        self._container, self._folder = parts.netloc, f"{parts.path.strip('/')}/"
        self._store = _swift(region, cloud)

    def read(self, name: str, max_bytes: int | None = None) -> bytes | None:
        """A file's content; None where it is larger. Raises FileNotFoundError, or another OSError."""
        from openstack.exceptions import raise_from_response

        with _told_as_oserror():
            path = quote(f"/{self._container}/{self._folder}{name}", safe="/")
            with self._store.get(path, stream=True, timeout=_TIMEOUT_SEC) as answer:
                if answer.status_code == 404:
                    raise FileNotFoundError(path)
                raise_from_response(answer)
                content: bytes = answer.content if max_bytes is None else answer.raw.read(max_bytes + 1)
        return None if max_bytes is not None and len(content) > max_bytes else content

    def names(self) -> list[str]:
        """Every file below. Raises OSError, also where there is no such container."""
        with _told_as_oserror():
            found = self._store.objects(self._container, prefix=self._folder, limit=_PAGE)
            return sorted(one.name.removeprefix(self._folder) for one in found)


def _swift(region: str, cloud: str) -> Any:
    """The region's object store, with the login of clouds.yaml, else of OS_*. OSError: neither says enough."""
    import openstack
    from openstack.config import OpenStackConfig
    from openstack.exceptions import ServiceDisabledException

    with _told_as_oserror():
        entry = OpenStackConfig().cloud_config["clouds"].get(cloud)
        login = entry["auth"] if entry else {name: os.environ.get(f"OS_{name.upper()}", "Default") for name in _DOMAINS}
        known: dict[str, Any] = {"cloud": cloud} if entry else {"load_yaml_config": False, "auth": login}
        if "application_credential_id" in login or "OS_APPLICATION_CREDENTIAL_ID" in os.environ:
            known["auth_type"] = "v3applicationcredential"
        store = openstack.connect(region_name=region, **known).object_store
        try:
            store.get_endpoint()
        except ServiceDisabledException:
            raise OSError(f"the catalogue has no object store in region {region}") from None
        return store


@contextmanager
def _told_as_oserror() -> Iterator[None]:
    """OSError for whatever the SDK raises, an HTTP status first."""
    from keystoneauth1.exceptions import ClientException, MissingRequiredOptions
    from openstack.exceptions import ConfigException, HttpException, SDKException
    from requests import RequestException

    try:
        with warnings.catch_warnings():
            for own in (DeprecationWarning, PendingDeprecationWarning):  # of its parts with each other
                warnings.filterwarnings("ignore", category=own)
            yield
    except (ConfigException, MissingRequiredOptions) as error:
        raise OSError(f"no login: neither clouds.yaml nor OS_* says enough ({error})") from None
    except HttpException as error:
        raise OSError(f"{error.status_code} {HTTPStatus(error.status_code or 500).phrase}") from None
    except (ClientException, SDKException, RequestException) as error:
        raise OSError(str(error)) from None


Result = TypeVar("Result")

_FIXES = {
    _NO_BUCKET: "make it, or name another in the stack file; one that the stack made itself somebody has deleted",
    _NO_PERMISSION: "log in as an account that may list and read it, such as the one that runs `up`",
    _NO_ANSWER: "look at it with the cloud's own command line, as the account that runs `up`",
}


def runs_url(provider: str, outputs: Mapping[str, Any], stack: str) -> str:
    """Where the run of a stack appears: what its program exports as `runs_url`, else below its run bucket. `stack`: its
    name, which is the job's too.
    """
    if outputs.get("runs_url"):
        return str(outputs["runs_url"])
    store = get_provider(provider).settings.store
    scheme = "" if store is None else f"{store.scheme}://"
    base = str(outputs.get("run_bucket_url") or f"{scheme}{outputs['run_bucket']}").rstrip("/")
    # A folder that machines see as we do.
    return f"{'file://' if base.startswith('/') else ''}{base}/{stack}/{stack}"


def bucket_region(provider: str, region: str) -> str:
    """A stack's region as RunStore takes it; empty where buckets are not addressed by region."""
    return region if get_provider(provider).has_regional_buckets else ""


class _Files(Protocol):
    """Files below one place. Both raise FileNotFoundError, and others for what else goes wrong."""

    def read(self, name: str, max_bytes: int | None = None) -> bytes | None:
        """A file's content; None where it is larger."""
        ...

    def names(self) -> list[str]:
        """Every file."""
        ...


class _Objects:
    """Files by obstore."""

    def __init__(self, store: "ObjectStore") -> None:
        self._store = store

    def read(self, name: str, max_bytes: int | None = None) -> bytes | None:
        found = self._store.get(name)
        is_larger = max_bytes is not None and found.meta["size"] > max_bytes
        return None if is_larger else bytes(found.bytes())

    def names(self) -> list[str]:
        return sorted(found["path"] for page in self._store.list() for found in page)


class _Here:
    """Those of a folder on this machine, in which others may have put links, FIFOs and devices."""

    def __init__(self, folder: Path, files: _Files) -> None:
        self._folder, self._files = folder, files

    def read(self, name: str, max_bytes: int | None = None) -> bytes | None:
        try:
            return read_regular(self._folder, name, _ANY_SIZE if max_bytes is None else max_bytes)
        except OSError as error:
            if error.errno == errno.EFBIG:
                return None
            raise

    def names(self) -> list[str]:
        return self._files.names()


class RunStore:
    """One run's folder. `url`: s3://, gs://, az://ACCOUNT/CONTAINER, Azure's https:// or swift://, with the path in it;
    file:// for a folder here; `region`: of an S3 bucket, which is asked where this is empty; or of OpenStack's object
    store.
    """

    def __init__(self, url: str, region: str = "", cloud: str = "") -> None:
        self.url, self._region, self._cloud = url.rstrip("/"), region, cloud
        self._files: _Files | None = None

    def read(self, name: str, max_bytes: int | None = None) -> bytes | None:
        """A file's content; None where there is no such file, in a bucket that answers. StoreFailedError: the bucket is
        missing, refuses, or does not answer; or the file is larger than that.
        """
        try:
            content = self._answered(lambda files: files.read(name, max_bytes))
        except FileNotFoundError:
            # A missing bucket says the same of a file; asked for a list it says so itself.
            self.names()
            return None
        if content is None:
            said = f"{self.url}/{name}: more than {max_bytes:,} bytes; look who else writes there"
            raise StoreFailedError(said, Failure.ODD)
        return content

    def names(self) -> list[str]:
        """Every file. Raises as `read` does."""
        try:
            return self._answered(lambda files: files.names())
        except FileNotFoundError:
            return []  # a folder that the run has not made yet

    def copy(self, folder: Path) -> list[str]:
        """Copies every file but checkpoints and data; returns their names. StoreFailedError: as `read` does;
        RunFailedError: a name leads out of `folder`. Nodes choose names, and must not write elsewhere on this machine;
        all others are copied before.
        """
        # What ends with a slash is a mark of a folder, without content.
        found = [name for name in self.names() if not name.startswith(_LEFT_OUT) and not name.endswith("/")]
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
                f"{self.url}: not copied, since {refused[0]!r} is no name inside a folder ({len(refused)} such); the "
                "trainer writes none like that: look who else writes there"
            )
        return wanted

    def _answered(self, ask: Callable[[_Files], Result]) -> Result:
        """What `ask` gives; what goes wrong, as a sentence. FileNotFoundError: there is no such file; StoreFailedError:
        whatever else.
        """
        from botocore.exceptions import BotoCoreError
        from obstore.exceptions import BaseError

        try:
            if self._files is None:
                self._files = _open(self.url, self._region, self._cloud)
            return ask(self._files)
        except FileNotFoundError:
            raise
        except (BaseError, BotoCoreError, OSError, ValueError) as error:
            first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            problem = _problem(error, first)
            raise StoreFailedError(f"{self.url}: {problem} ({first}); {_FIXES[problem]}", _kind(error, first)) from None


def _kind(error: Exception, first: str) -> Failure:
    """Whether it may pass: only a plain refusal, a missing bucket and an address that is none surely do not."""
    # Obstore's settings stand in its words, "retry_timeout" among them.
    message = f"{type(error).__name__}: {error}".replace("retry_timeout", "")
    if _ENDED.search(message):
        return Failure.LOGIN
    if _problem(error, first) != _NO_ANSWER:
        return Failure.LOGIN if re.search(r"\b401\b|Unauthenticated", message) else Failure.LASTING
    if isinstance(error, ValueError):
        return Failure.LASTING
    return Failure.OUTAGE if _OUTAGE.search(message) else Failure.LOGIN


def _problem(error: Exception, message: str) -> str:
    """What a failure means. For a list obstore has one kind of error, with the answer's status in its words."""
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or _REFUSED.search(message):
        return _NO_PERMISSION
    return _NO_BUCKET if _MISSING.search(message) else _NO_ANSWER


def _open(url: str, region: str, cloud: str) -> _Files:
    """The store of a URL, with the credentials that this shell has."""
    if url.startswith("swift://"):
        return SwiftFolder(url, region, cloud)
    files = _Objects(object_store(url, region))
    return _Here(_path(url), files) if url.startswith("file://") else files


def object_store(url: str, region: str) -> "ObjectStore":
    """A bucket's folder, or one of this machine, with the credentials that this shell has."""
    from obstore import store

    scheme = url.partition("://")[0]
    plain_http = any(os.environ.get(f"{cloud}_ALLOW_HTTP") == "true" for cloud in ("AWS", "GOOGLE", "AZURE"))
    common: dict[str, Any] = {"client_options": {**_CLIENT, "allow_http": plain_http}, "retry_config": _RETRIES}
    if scheme == "file":
        return _folder(url)
    if scheme == "s3":
        return store.S3Store.from_url(url, **common, **_aws(region or _bucket_region(urlsplit(url).netloc)))
    if scheme == "gs":
        return store.GCSStore.from_url(url, **common)
    if scheme == "az":  # obstore's az:// has no account in it
        url = read_blob_url(url, "run store").https
    return store.AzureStore.from_url(url, **common, **_azure())


def _folder(url: str) -> "ObjectStore":
    from obstore import store

    folder = _path(url)
    if not folder.is_dir():
        raise FileNotFoundError(folder)
    return store.LocalStore(folder)


def _path(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def _aws(region: str) -> dict[str, Any]:
    """Obstore alone reads neither profiles nor SSO."""
    import boto3
    from obstore.auth.boto3 import Boto3CredentialProvider

    session = boto3.Session()
    found = {"region": region} if region else {}
    return {**found, "credential_provider": Boto3CredentialProvider(session)} if session.get_credentials() else found


def _bucket_region(bucket: str) -> str:
    """Where a bucket is, which S3 says even to those whom it refuses; empty where it says nothing."""
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config
    from botocore.exceptions import ClientError

    session = boto3.Session()
    own = {} if session.get_credentials() else {"signature_version": UNSIGNED}
    config = Config(connect_timeout=10, read_timeout=30, retries={"total_max_attempts": 2}, **own)
    client = session.client("s3", region_name=session.region_name or "us-east-1", config=config)
    try:
        answer = client.head_bucket(Bucket=bucket)
    except ClientError as refused:
        answer = refused.response
    headers = answer["ResponseMetadata"].get("HTTPHeaders", {})
    return str(headers.get("x-amz-bucket-region", "") or session.region_name or "")


def _azure() -> dict[str, Any]:
    named = any(os.environ.get(f"AZURE_{name}") for name in ("CLIENT_ID", "STORAGE_ACCOUNT_KEY", "STORAGE_SAS_KEY"))
    return {} if named or os.environ.get("AZURE_SKIP_SIGNATURE") else {"use_azure_cli": True}
