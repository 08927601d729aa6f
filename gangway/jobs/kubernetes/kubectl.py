"""kubectl for one context and one namespace: it handles logins as the kubeconfig says. Finds the user's queue, and
merges the log lines of several pods by time.
"""

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gangway.components.core.findings import InputError, nearest_hint
from gangway.jobs.base import EngineAwayError

Found = Mapping[str, Any]
"""An object of the cluster."""
_TIMEOUT_SEC, _ANSWER_SEC, _LOGS_SEC = 120.0, 30, 110
_KLOG = re.compile(r"^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \S+:\d+\] .*\n?", re.MULTILINE)
"""Log lines of its libraries; the message for users follows them."""
_NO_CONTEXT = re.compile(r"context \S+ does not exist|context was not found for specified context")
_NO_KIND = re.compile(r"the server doesn't have a resource type")
_AWAY = re.compile(
    r"Unable to connect to the server|was refused|i/o timeout|TLS handshake timeout|no such host|net/http:|"
    r"etcdserver:|ServiceUnavailable|apiserver not ready|failed calling webhook|"
    r"Error from server \((?:Timeout|ServerTimeout|InternalError|TooManyRequests)\)"
)
QUEUES = "localqueues.kueue.x-k8s.io"
_EVERYWHERE = "--all-namespaces"
_ZONE = rb"(?:Z|[+-]\d\d:\d\d)"
"""The node's time zone."""
_LINE = re.compile(
    rb"\[pod/[^\]]+\] (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(" + _ZONE + rb") ?(.*)", re.DOTALL
)
_ENDS = re.compile(rb"\n|(?=\[pod/[^\]]+\] \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?" + _ZONE + rb")")
"""Only a newline ends a line, not a progress bar's carriage return; a pod's last line may lack it."""
_ERROR = re.compile(rb"^error: .*|error: .*\(Client\.Timeout or .* while reading body\)$", re.MULTILINE)
_NOTHING_YET = re.compile(rb"is waiting to start|not have a host assigned|not found|not find the requested resource")
_AGREEMENT_NS = 2 * 10**9
"""By which nodes' clocks may differ: newer lines of running pods wait for the next call."""


class MissingError(InputError):
    """No such object."""


class TakenError(InputError):
    """The name exists."""


class ForbiddenError(InputError):
    """This user may not read or change the object."""


@dataclass(frozen=True)
class Kubectl:
    """`context`: empty for the kubeconfig's current one."""

    context: str
    namespace: str

    def get(self, kind: str, *words: str) -> Any:
        """One object if a name is given, else a list. MissingError, ForbiddenError, InputError, EngineAwayError."""
        found = json.loads(self.run("get", kind, *words, "--output=json"))
        return found["items"] if found["kind"].endswith("List") else found

    def has(self, kind: str, name: str) -> bool:
        """Whether it exists, or this user may not read it: its users or Kueue then report it. Raises as `get`."""
        try:
            self.get(kind, name)
        except MissingError:
            return False
        except ForbiddenError:
            pass
        return True

    def create(self, manifest: Mapping[str, Any]) -> Any:
        """With strict validation; returns the stored object. TakenError, and as `get`."""
        words = ("create", "--validate=strict", "--output=json", "--filename=-")
        return json.loads(self.run(*words, stdin=json.dumps(manifest)))

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        """A merge patch. Raises as `get`."""
        self.run("patch", kind, name, "--type=merge", f"--patch={json.dumps(change)}")

    def run(self, *words: str, stdin: str | None = None) -> str:
        """Its output. Raises as `get`."""
        return self._run(words, _ANSWER_SEC, stdin).decode()

    def logs(self, *words: str) -> bytes:
        """The pods' output as bytes. Raises as `get`."""
        return self._run(("logs", *words), _LOGS_SEC)

    def _run(self, words: Sequence[str], answer_sec: int, stdin: str | None = None) -> bytes:
        where = [f"--namespace={self.namespace}", *([f"--context={self.context}"] if self.context else [])]
        try:
            done = subprocess.run(
                ["kubectl", *where, f"--request-timeout={answer_sec}s", *words],
                input=None if stdin is None else stdin.encode(),
                stdin=subprocess.DEVNULL if stdin is None else None,
                capture_output=True, timeout=_TIMEOUT_SEC,
            )  # fmt: skip
        except FileNotFoundError:
            raise InputError("--on kubernetes", "kubectl is not on PATH", fix="install kubectl") from None
        except subprocess.TimeoutExpired:
            raise EngineAwayError(
                "--on kubernetes",
                f"kubectl {words[0]}: no answer within {_TIMEOUT_SEC:g} s",
                fix="kubectl cluster-info",
            ) from None
        if done.returncode:
            message = done.stderr.decode(errors="replace").strip()
            raise self._no_context() if _NO_CONTEXT.search(message) else _error(words, message)
        return done.stdout

    def _no_context(self) -> InputError:
        done = subprocess.run(["kubectl", "config", "get-contexts", "--output=name"], capture_output=True, text=True)
        names = done.stdout.split()
        return InputError(
            "--on kubernetes", "the kubeconfig has no such context", value=self.context,
            allowed=", ".join(names) or "there are none",
            fix=nearest_hint(self.context, names) if names else "set KUBECONFIG to the file that has it",
        )  # fmt: skip


_KINDS: Sequence[tuple[str, type[InputError]]] = (
    ("(NotFound)", MissingError),
    ("(AlreadyExists)", TakenError),
    ("(Forbidden)", ForbiddenError),
)


def _error(words: Sequence[str], message: str) -> InputError:
    message = _KLOG.sub("", message).strip() or message
    if _AWAY.search(message):
        return EngineAwayError("--on kubernetes", message, fix="check whether it answers: kubectl cluster-info")
    if _NO_KIND.search(message):
        return InputError("--on kubernetes", message, fix="install JobSet and Kueue: docs/kubernetes.md")
    kind = next((kind for mark, kind in _KINDS if mark in message), InputError)
    return kind(
        "--on kubernetes", f"kubectl {words[0]}: {message}", fix="see what you may do: kubectl auth can-i --list"
    )


def local_queue(kubectl: Kubectl, name: str) -> Any:
    """Kueue's object. InputError: no such queue or namespace; lists those that exist."""
    try:
        return kubectl.get(QUEUES, name)
    except MissingError:
        raise _no_place(kubectl, name) from None


def _no_place(kubectl: Kubectl, name: str) -> InputError:
    place = f"--on kubernetes:{kubectl.context}@{kubectl.namespace}/{name}"
    if not kubectl.has("namespace", kubectl.namespace):
        known = _list_names(kubectl, "namespaces")
        fix = nearest_hint(kubectl.namespace, known or ())
        problem = "the cluster has no such namespace"
        return InputError(place, problem, value=kubectl.namespace, allowed=_or_none(known), fix=fix)
    if own := _list_names(kubectl, QUEUES):
        problem, fix = "the namespace has no such Kueue queue", nearest_hint(name, own)
        return InputError(place, problem, value=name, allowed=", ".join(own), fix=fix)
    others = _list_names(kubectl, QUEUES, _EVERYWHERE)
    fix = f"--on kubernetes:{kubectl.context}@{others[0]}" if others else "docs/kubernetes.md has a manifest to apply"
    return InputError(place, "the namespace has no Kueue queue", value=name, allowed=_or_none(others), fix=fix)


def _list_names(kubectl: Kubectl, kind: str, *words: str) -> Sequence[str] | None:
    try:
        metas = [each["metadata"] for each in kubectl.get(kind, *words)]
    except ForbiddenError:
        return None
    return [f"{each['namespace']}/{each['name']}" if _EVERYWHERE in words else each["name"] for each in metas]


def _or_none(names: Sequence[str] | None) -> str:
    if names is None:
        return "you may not list them"
    return ", ".join(names) or "there are none"


def since_args(offset_ns: int) -> list[str]:
    """Arguments for kubectl, in whole seconds."""
    if not offset_ns:
        return []
    return [f"--since-time={datetime.fromtimestamp(offset_ns // 10**9, UTC):%Y-%m-%dT%H:%M:%SZ}"]


def find_log_error(output: bytes) -> str:
    """Why the log of a pod may be incomplete (kubectl continues with the next pod); empty if it is complete."""
    found = (each[0] for each in _ERROR.finditer(output) if not _NOTHING_YET.search(each[0]))
    return next(found, b"").decode(errors="replace")


def merge_logs(output: bytes, offset_ns: int, now_ns: int | None) -> tuple[str, int]:
    """Text after the offset, and its end's time. `now_ns`: while pods run, since older lines may still come."""
    lines = list[tuple[int, str]]()
    for each in _ENDS.split(output):
        if found := _LINE.fullmatch(each):
            second = datetime.fromisoformat(f"{found[1].decode()}{found[3].decode()}")
            at = int(second.timestamp()) * 10**9 + int((found[2] or b"").decode().ljust(9, "0"))
            lines.append((at, found[4].decode(errors="replace")))
    until = None if now_ns is None else now_ns - _AGREEMENT_NS
    new = [each for each in lines if each[0] > offset_ns and (until is None or each[0] <= until)]
    new.sort(key=lambda each: each[0])
    return "".join(f"{text}\n" for _, text in new), new[-1][0] if new else offset_ns
