"""A thread of the launcher that asks the cloud's metadata service, every few seconds, whether this node is to go."""

import http.client
import json
import os
import signal
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from trainer.core.console import announce
from trainer.preemption.notices import Kind, Notice, write_notice

_EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
_NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
_TIMEOUT_SEC = 2.0
# The very first question turns the service on, which takes up to two minutes.
_FIRST_TIMEOUT_SEC = 130.0
_ENDS = ("spot-interruption", "lifecycle-terminate")
_KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "Preempt": "spot-interruption",
        "Terminate": "lifecycle-terminate",
        "Reboot": "host-restart",
        "Redeploy": "host-restart",
        "Freeze": "host-maintenance",
    }
)
POLL_SEC = 5.0
_TOKEN_TTL_SEC = 21600
# Google gives 30 s in all, so it is asked all the time: each question waits for its answer.
_GCE_POLL_SEC = 0.5
_GCE_WAIT_SEC = 4
# Azure's own advice: a preemption is told 30 s before.
_AZURE_POLL_SEC = 1.0


class AzureMetadata:
    """The metadata service of one virtual machine."""

    def __init__(self, url: str = "http://169.254.169.254") -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 80)
        self._name = ""
        self._timeout_sec = _FIRST_TIMEOUT_SEC

    def poll(self) -> Iterable[tuple[Kind, str]]:
        """The notices that hold now, of events that name this machine. OSError: no answer; ValueError: no JSON."""
        self._name = self._name or self._get(_NAME, _TIMEOUT_SEC)
        document = json.loads(self._get(_EVENTS, self._timeout_sec))
        self._timeout_sec = _TIMEOUT_SEC
        for event in document["Events"]:
            kind = _kind(event) if self._name in event["Resources"] else None
            if kind is not None:
                yield kind, str(event.get("NotBefore", ""))

    def _get(self, path: str, timeout_sec: float) -> str:
        # http.client, not urllib: no proxy of the environment stands between a machine and its metadata.
        connection = http.client.HTTPConnection(*self._address, timeout=timeout_sec)
        try:
            connection.request("GET", path, headers={"Metadata": "true"})
            response = connection.getresponse()
            text = response.read().decode()
        except http.client.HTTPException as error:
            raise ConnectionError(f"the metadata service answers no HTTP: {error!r}") from None
        finally:
            connection.close()
        if response.status != http.HTTPStatus.OK:
            raise ConnectionError(f"the metadata service answers {response.status} for {path.partition('?')[0]}")
        return text.strip()


def _kind(event: Mapping[str, Any]) -> Kind | None:
    kind = _KINDS.get(event["EventType"])
    if kind in _ENDS:
        return kind
    # One that has begun is over soon, or was when this machine came up again. 0: the machine will not notice.
    if event["EventStatus"] != "Scheduled" or event.get("DurationInSeconds") == 0:
        return None
    # Together with other machines it may be days away, and begins at nobody's word alone.
    return "host-maintenance" if len(event["Resources"]) > 1 else kind


Poll = Callable[[], Iterable[tuple[Kind, str]]]
"""Asks once: the kind and the deadline (ISO 8601, or empty) of every notice that holds now."""


class AwsMetadata:
    """EC2's instance metadata, version 2 only. Needs a hop limit of 2, or the host's network, in a container."""

    def __init__(self, url: str = "http://169.254.169.254") -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 80)
        self._token = ""

    def poll(self) -> Iterable[tuple[Kind, str]]:
        """The notices that hold now (OSError: no answer)."""
        if action := self.get("spot/instance-action"):
            yield "spot-interruption", str(json.loads(action).get("time", ""))
        if self.get("autoscaling/target-lifecycle-state") == "Terminated":
            yield "lifecycle-terminate", ""
        if recommendation := self.get("events/recommendations/rebalance"):
            yield "rebalance", str(json.loads(recommendation).get("noticeTime", ""))

    def get(self, item: str) -> str:
        """One item of metadata; empty where there is no such item. OSError: no answer, or other than the item, 401 (a
        new token is asked for, once) and 404.
        """
        for _ in range(2):
            self._token = self._token or self._ask(
                "PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_TTL_SEC)}
            )
            try:
                return self._ask("GET", f"/latest/meta-data/{item}", {"X-aws-ec2-metadata-token": self._token})
            except PermissionError:
                self._token = ""
        raise ConnectionError("instance metadata refuses its own tokens")

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> str:
        # http.client, not urllib: no proxy of the environment stands between a machine and its metadata.
        connection = http.client.HTTPConnection(*self._address, timeout=_TIMEOUT_SEC)
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            text = response.read().decode()
        except http.client.HTTPException as error:
            raise ConnectionError(f"instance metadata answers no HTTP: {error!r}") from None
        finally:
            connection.close()
        if response.status == http.HTTPStatus.UNAUTHORIZED:
            raise PermissionError
        if response.status == http.HTTPStatus.NOT_FOUND:
            return ""
        if response.status != http.HTTPStatus.OK:
            raise ConnectionError(f"instance metadata answers {response.status} for {path}")
        return text.strip()


class GceMetadata:
    """Compute Engine's metadata server, on virtual machines and on hosts of TPU slices. `wait_sec`: for how long it may
    hold back its answer until there is a preemption.
    """

    def __init__(self, url: str = "http://169.254.169.254", wait_sec: int = _GCE_WAIT_SEC) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 80)
        self._wait_sec = wait_sec
        self._etag = ""

    def poll(self) -> Iterable[tuple[Kind, str]]:
        """The notices that hold now, after a wait for a preemption, without times (OSError: no answer)."""
        # MIGRATE_ON_HOST_MAINTENANCE needs nothing, and machines with GPUs or TPUs never migrate.
        if self._get("instance/maintenance-event") == "TERMINATE_ON_HOST_MAINTENANCE":
            yield "host-maintenance", ""
        if self._get("instance/preempted", wait=True) == "TRUE":
            yield "spot-interruption", ""

    def _get(self, item: str, *, wait: bool = False) -> str:
        """One item of metadata; empty where there is none, as on a machine that is no spot one (OSError: neither that
        nor 404).

        With `wait` the server answers when the item is another than at the last such call, or after `wait_sec`.
        """
        query = ""
        if wait and self._etag:
            query = f"?wait_for_change=true&timeout_sec={self._wait_sec}&last_etag={self._etag}"
        # http.client, not urllib: no proxy of the environment stands between a machine and its metadata.
        connection = http.client.HTTPConnection(*self._address, timeout=_TIMEOUT_SEC + self._wait_sec)
        try:
            connection.request("GET", f"/computeMetadata/v1/{item}{query}", headers={"Metadata-Flavor": "Google"})
            response = connection.getresponse()
            text = response.read().decode()
        except http.client.HTTPException as error:
            raise ConnectionError(f"the metadata server answers no HTTP: {error!r}") from None
        finally:
            connection.close()
        if response.status == http.HTTPStatus.NOT_FOUND:
            return ""
        if response.status != http.HTTPStatus.OK:
            raise ConnectionError(f"the metadata server answers {response.status} for {item}")
        if wait:
            self._etag = response.getheader("ETag", "")
        return text.strip()


def _aws() -> Poll:
    return AwsMetadata(os.environ.get("GANGWAY_IMDS_URL", "http://169.254.169.254")).poll


def _gcp() -> Poll:
    return GceMetadata(os.environ.get("GANGWAY_METADATA_URL", "http://169.254.169.254")).poll


def _azure() -> Poll:
    return AzureMetadata(os.environ.get("GANGWAY_METADATA_URL", "http://169.254.169.254")).poll


CLOUDS: Mapping[str, Callable[[], Poll]] = MappingProxyType({"aws": _aws, "azure": _azure, "gcp": _gcp})
"""What `--watch` accepts, and what makes its poll."""


def poll_sec_of(cloud: str) -> float:
    """Seconds between two polls of a cloud."""
    return {"azure": _AZURE_POLL_SEC, "gcp": _GCE_POLL_SEC}.get(cloud, POLL_SEC)


class Watcher(threading.Thread):
    """Polls until the first notice that stops the run, then sends SIGTERM to this process and ends. `poll` None keeps
    the job's hours alone, of which `left_sec` says how many seconds are left; None for no end.
    """

    def __init__(
        self,
        notices: Path,
        poll: Poll | None,
        left_sec: Callable[[], float] | None = None,
        poll_sec: float = POLL_SEC,
    ) -> None:
        super().__init__(name="gangway-watch", daemon=True)
        self._file, self._poll, self._poll_sec = notices, poll, poll_sec
        self._left_sec = left_sec or (lambda: float("inf"))
        self._seen: set[Kind] = set()
        self._ended = threading.Event()
        self._trouble = ""

    def run(self) -> None:
        """The thread's body; `start` calls it."""
        while not self._ended.is_set():
            for kind, deadline in self._ask():
                if kind not in self._seen:
                    self._seen.add(kind)
                    notice = write_notice(self._file, kind, deadline)
                    announce(_sentence(notice))
                    if notice.stops:
                        os.kill(os.getpid(), signal.SIGTERM)
                        return
            self._ended.wait(self._wait_sec())

    def close(self) -> None:
        """Ends the thread, which may still wait for an answer that nobody needs; the launcher is done."""
        self._ended.set()
        self.join(_TIMEOUT_SEC)

    def _ask(self) -> list[tuple[Kind, str]]:
        """What holds now. A cloud that does not answer is told once, not every few seconds, and asked again."""
        if self._left_sec() <= 0:
            return [("max-hours", "")]
        try:
            found = list(self._poll()) if self._poll is not None else []
        except Exception as error:  # an answer of any form: without this thread nobody hears of notices or of the hours
            said = f"{type(error).__name__}: {error}"
            if said != self._trouble:
                announce(f"cannot ask for notices, trying on: {said}")
            self._trouble = said
            return []
        self._trouble = ""
        return found

    def _wait_sec(self) -> float:
        return max(0.0, min(self._left_sec(), self._poll_sec))


def _sentence(notice: Notice) -> str:
    what = "saving and leaving" if notice.stops else "saving once, and going on"
    return f"{notice.kind}{f' at {notice.deadline}' if notice.deadline else ''}: {what}"
