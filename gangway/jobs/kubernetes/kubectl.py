"""kubectl for one context and one namespace; it handles logins as the kubeconfig says."""

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gangway.components.core.findings import InputError, nearest_hint
from gangway.jobs.base import EngineAwayError

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
