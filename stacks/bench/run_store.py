"""RunStore: the folder of a bucket, or of this machine, in which a run's files appear. Read only.

Credentials are those of the shell that runs `gangway`: AWS's by its whole chain (profiles, SSO), Google's application
default, Azure's by `az login` or AZURE_*, OpenStack's by clouds.yaml or OS_*. Not a file system: it looks for a name,
and copies all.
"""

import os
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from stacks.bench.runner import StoreFailedError
from stacks.bench.swift import SwiftFolder

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["RunStore", "runs_url"]

Result = TypeVar("Result")

_LEFT_OUT = ("checkpoints/", "data/")
"""What a table does not need, and what may be as large as a disk."""
_CLIENT = {"timeout": "30s", "connect_timeout": "10s"}
_REFUSED = re.compile(r"\b40[13]:? (Forbidden|Unauthorized)")
_MISSING = re.compile(r"\b404:? Not Found")
_RETRIES = {"max_retries": 2, "retry_timeout": timedelta(seconds=20)}


def runs_url(provider: str, outputs: Mapping[str, Any], stack: str) -> str:
    """Where the run of a stack appears: what its program exports as `runs_url`, else below its run bucket.

    Args:
        provider: of the stack.
        outputs: of `up`.
        stack: its name, which is the job's too.
    """
    if outputs.get("runs_url"):
        return str(outputs["runs_url"])
    scheme = {"aws": "s3://", "gcp": "gs://"}.get(provider, "")
    base = str(outputs.get("run_bucket_url") or f"{scheme}{outputs['run_bucket']}").rstrip("/")
    # A folder that machines see as we do.
    return f"{'file://' if base.startswith('/') else ''}{base}/{stack}/{stack}"


class _Files(Protocol):
    """Files below one place. Both raise FileNotFoundError, and others for what else goes wrong."""

    def read(self, name: str) -> bytes:
        """A file's content."""
        ...

    def names(self) -> list[str]:
        """Every file."""
        ...


class _Objects:
    """Files by obstore."""

    def __init__(self, store: "ObjectStore") -> None:
        self._store = store

    def read(self, name: str) -> bytes:
        return bytes(self._store.get(name).bytes())

    def names(self) -> list[str]:
        return sorted(found["path"] for page in self._store.list() for found in page)


class RunStore:
    """One run's folder.

    Args:
        url: s3://, gs://, az://, Azure's https:// or swift://, with the path in it; file:// for a folder here.
        region: of an S3 bucket, or of OpenStack's object store.
        cloud: OpenStack's, by its name in clouds.yaml.
    """

    def __init__(self, url: str, region: str = "", cloud: str = "") -> None:
        self.url, self._region, self._cloud = url.rstrip("/"), region, cloud

    def read(self, name: str) -> bytes | None:
        """A file's content; None where there is no such file, in a bucket that answers.

        Raises:
            StoreFailedError: the bucket is missing, refuses, or does not answer.
        """
        try:
            return self._answered(lambda files: files.read(name))
        except FileNotFoundError:
            # A missing bucket says the same of a file; asked for a list it says so itself.
            self.names()
            return None

    def names(self) -> list[str]:
        """Every file. Raises as `read` does."""
        try:
            return self._answered(lambda files: files.names())
        except FileNotFoundError:
            return []  # a folder that the run has not made yet

    def copy(self, folder: Path) -> list[str]:
        """Copies every file but checkpoints and data; returns their names. Raises as `read` does."""
        wanted = [name for name in self.names() if not name.startswith(_LEFT_OUT)]
        for name in wanted:
            content = self.read(name)
            if content is not None:
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                partial = target.with_name(f".partial-{target.name}")
                partial.write_bytes(content)
                partial.replace(target)
        return wanted

    def _answered(self, ask: Callable[[_Files], Result]) -> Result:
        """What `ask` gives; what goes wrong, as a sentence.

        Raises:
            FileNotFoundError: there is no such file.
            StoreFailedError: whatever else.
        """
        from obstore.exceptions import BaseError

        try:
            return ask(_open(self.url, self._region, self._cloud))
        except FileNotFoundError:
            raise
        except (BaseError, OSError, ValueError) as error:
            first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise StoreFailedError(
                f"{self.url}: {_problem(error, first)} ({first}); look at it with the cloud's own command line, as the "
                "account that runs `up`"
            ) from None


def _problem(error: Exception, words: str) -> str:
    """What a failure means. For a list obstore has one kind of error, with the answer's status in its words."""
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or _REFUSED.search(words):
        return "no permission to read it"
    return "there is no such bucket" if _MISSING.search(words) else "cannot be read"


def _open(url: str, region: str, cloud: str) -> _Files:
    """The store of a URL, with the credentials that this shell has."""
    if url.startswith("swift://"):
        return SwiftFolder(url, region, cloud)
    return _Objects(_object_store(url, region))


def _object_store(url: str, region: str) -> "ObjectStore":
    from obstore import store

    scheme = url.partition("://")[0]
    plain_http = any(os.environ.get(f"{cloud}_ALLOW_HTTP") == "true" for cloud in ("AWS", "GOOGLE", "AZURE"))
    common: dict[str, Any] = {"client_options": {**_CLIENT, "allow_http": plain_http}, "retry_config": _RETRIES}
    if scheme == "file":
        return _folder(url)
    if scheme == "s3":
        return store.S3Store.from_url(url, **common, **_aws(region))
    if scheme == "gs":
        return store.GCSStore.from_url(url, **common)
    return store.AzureStore.from_url(url, **common, **_azure())


def _folder(url: str) -> "ObjectStore":
    from obstore import store

    folder = Path(unquote(urlsplit(url).path))
    if not folder.is_dir():
        raise FileNotFoundError(folder)
    return store.LocalStore(folder)


def _aws(region: str) -> dict[str, Any]:
    """Obstore alone reads neither profiles nor SSO."""
    import boto3
    from obstore.auth.boto3 import Boto3CredentialProvider

    session = boto3.Session()
    found = {"region": region} if region else {}
    return {**found, "credential_provider": Boto3CredentialProvider(session)} if session.get_credentials() else found


def _azure() -> dict[str, Any]:
    named = any(os.environ.get(f"AZURE_{name}") for name in ("CLIENT_ID", "STORAGE_ACCOUNT_KEY", "STORAGE_SAS_KEY"))
    return {} if named or os.environ.get("AZURE_SKIP_SIGNATURE") else {"use_azure_cli": True}
