"""kubectl, with one context and one namespace: whatever a kubeconfig takes to log in, it does."""

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.core.findings import InputError
from stacks.engines.base import EngineAwayError

_TIMEOUT_SEC, _ANSWER_SEC, _LOGS_SEC = 120.0, 30, 110
_AWAY = re.compile(
    r"Unable to connect to the server|was refused|i/o timeout|TLS handshake timeout|no such host|net/http:|"
    r"etcdserver:|ServiceUnavailable|apiserver not ready|failed calling webhook|"
    r"Error from server \((?:Timeout|ServerTimeout|InternalError|TooManyRequests)\)"
)


class MissingError(InputError):
    """There is no such object."""


class TakenError(InputError):
    """There is one of that name."""


class ForbiddenError(InputError):
    """One that this user may not see or change."""


@dataclass(frozen=True)
class Kubectl:
    """`context`: the kubeconfig's current one where empty."""

    context: str
    namespace: str

    def get(self, kind: str, *words: str) -> Any:
        """Of a name one object, else a list's items. MissingError, ForbiddenError, InputError, EngineAwayError."""
        found = json.loads(self.run("get", kind, *words, "--output=json"))
        return found["items"] if found["kind"].endswith("List") else found

    def create(self, manifest: Mapping[str, Any]) -> Any:
        """Strictly; returns it as it was stored. TakenError besides what `get` raises."""
        words = ("create", "--validate=strict", "--output=json", "--filename=-")
        return json.loads(self.run(*words, told=json.dumps(manifest)))

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        """A merge patch. Raises as `get`."""
        self.run("patch", kind, name, "--type=merge", f"--patch={json.dumps(change)}")

    def run(self, *words: str, told: str | None = None) -> str:
        """What it prints. Raises as `get`."""
        return self._run(words, _ANSWER_SEC, told).decode()

    def logs(self, *words: str) -> bytes:
        """What pods have written, byte for byte. Raises as `get`."""
        return self._run(("logs", *words), _LOGS_SEC)

    def _run(self, words: Sequence[str], answer_sec: int, told: str | None = None) -> bytes:
        where = [f"--namespace={self.namespace}", *([f"--context={self.context}"] if self.context else [])]
        try:
            done = subprocess.run(
                ["kubectl", *where, f"--request-timeout={answer_sec}s", *words],
                input=None if told is None else told.encode(),
                stdin=subprocess.DEVNULL if told is None else None,
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
            raise _error(words, done.stderr.decode(errors="replace").strip())
        return done.stdout


_KINDS: Sequence[tuple[str, type[InputError]]] = (
    ("(NotFound)", MissingError),
    ("(AlreadyExists)", TakenError),
    ("(Forbidden)", ForbiddenError),
)


def _error(words: Sequence[str], said: str) -> InputError:
    if _AWAY.search(said):
        return EngineAwayError("--on kubernetes", said, fix="kubectl cluster-info says whether it answers")
    kind = next((kind for mark, kind in _KINDS if mark in said), InputError)
    return kind("--on kubernetes", f"kubectl {words[0]}: {said}", fix="kubectl auth can-i --list says what you may do")
