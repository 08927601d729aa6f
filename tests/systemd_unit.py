"""A systemd in small: what it does with a node's service, by the unit's own text. No test can count on a real one, for
that is a machine's first process. What the text says and is not known here is refused, and not left out in silence.

systemd.service(5), systemd.kill(5), systemd.exec(5).
"""

import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tests.images.test_units import parse_unit

MARK = "GANGWAY_TEST_CGROUP"
"""A variable of all processes of a service, by which they are found as systemd finds them by their control group."""
PACE = 0.1
"""A pause between two starts lasts that much of what the unit says: nothing happens in it."""
_KNOWN: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        # What stands before this service, and where it is enabled, is the caller's.
        "Unit": frozenset({"Description", "Requires", "Wants", "After", "StartLimitIntervalSec"}),
        "Install": frozenset({"WantedBy"}),
        "Service": frozenset(
            {"Type", "RemainAfterExit", "TimeoutStartSec", "ExecStartPre", "ExecStart", "ExecStopPost", "KillMode"}
            | {"KillSignal", "TimeoutStopSec", "Restart", "RestartSec", "SuccessExitStatus"}
            | {"RestartForceExitStatus", "RestartPreventExitStatus", "Environment"}
            # Of what a service may do and where it may write nothing is seen to: who has begun it has its folder.
            | {"RuntimeDirectory", "RuntimeDirectoryPreserve", "CapabilityBoundingSet", "NoNewPrivileges"}
            | {"ProtectSystem", "ProtectHome", "PrivateTmp"}
        ),
    }
)
_CLEAN_SIGNALS = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE})


@dataclass(frozen=True)
class End:
    """Of a main process: `code` as subprocess has it; `result` is $SERVICE_RESULT."""

    code: int
    result: str

    @property
    def variables(self) -> Mapping[str, str]:
        """What a command of ExecStopPost= is told."""
        killed = self.code < 0
        status = signal.Signals(-self.code).name.removeprefix("SIG") if killed else str(self.code)
        return {
            "SERVICE_RESULT": self.result,
            "EXIT_CODE": "killed" if killed else "exited",
            "EXIT_STATUS": status,
        }


class Service:
    """One of a node's services.

    Attributes:
        env: of its processes, and nothing besides.
        journal: what they write.
    """

    def __init__(self, text: str, env: Mapping[str, str], journal: Path) -> None:
        unit = parse_unit(text)
        for section, keys in unit.items():
            assert keys.keys() <= _KNOWN[section], f"[{section}] has {keys.keys() - _KNOWN[section]}"
        self._service, self._journal = unit["Service"], journal
        own = [word for line in self._service.get("Environment", []) for word in shlex.split(line)]
        self._env = {**env, **dict(word.split("=", 1) for word in own), MARK: f"{journal}.{id(self)}"}
        self._main: subprocess.Popen[bytes] | None = None
        self._turn, self._stopped, self._timed_out = threading.Lock(), threading.Event(), False
        assert self._one("Type", "simple") in ("exec", "oneshot")
        assert self._one("KillMode", "control-group") in ("mixed", "control-group")
        assert unit["Unit"].get("StartLimitIntervalSec", ["0"]) == ["0"], "starts are not counted here"

    def run(self, on_node: Callable[[bool], None] = lambda begins: None) -> bool:
        """Until it is dead: True where that was as it should be. `on_node`: told of a main process's begin and end."""
        while True:
            end = self._started(on_node)
            if not self._begins_again(end):
                return end.result == "success"
            self._stopped.wait(self._sec("RestartSec") * PACE)

    def stop(self) -> None:
        """`systemctl stop`: returns once nothing of it runs."""
        with self._turn:
            self._stopped.set()
            main = self._main
        if main is None:
            return
        others = () if self._one("KillMode", "control-group") == "mixed" else self._processes()
        for pid in {main.pid, *others}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.Signals[self._one("KillSignal", "SIGTERM")])
        try:
            main.wait(self._sec("TimeoutStopSec"))
        except subprocess.TimeoutExpired:
            self._timed_out = True
            self._kill_all()
            main.wait()

    def _started(self, on_node: Callable[[bool], None]) -> End:
        end = self._commands("ExecStartPre", {})
        if end.result == "success" and not self._stopped.is_set():
            on_node(True)
            end = self._commands("ExecStart", {})
            on_node(False)
        self._commands("ExecStopPost", end.variables, is_main=False)
        return end

    def _commands(self, key: str, more: Mapping[str, str], *, is_main: bool = True) -> End:
        """One after the other, up to the first that fails and may not."""
        end = End(0, "success")
        for line in self._service.get(key, []):
            may_fail, words = line.startswith("-"), shlex.split(line.removeprefix("-"))
            end = self._command(words, more, is_main=is_main)
            if may_fail:
                end = End(0, "success")
            if end.result != "success":
                break
        return end

    def _command(self, words: list[str], more: Mapping[str, str], *, is_main: bool) -> End:
        with self._journal.open("ab") as output:
            with self._turn:
                if is_main and self._stopped.is_set():
                    return End(-signal.SIGTERM, self._result(-signal.SIGTERM))
                process = subprocess.Popen(
                    words, env={**self._env, **more}, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/"
                )
                self._main = process if is_main else None
            try:
                code = process.wait(None if is_main else self._sec("TimeoutStopSec"))
            except subprocess.TimeoutExpired:
                self._kill_all()
                code = process.wait()
        with self._turn:
            self._main = None
        # Nothing outlives the main process, as a container ends with its first one.
        self._kill_all()
        return End(code, self._result(code))

    def _result(self, code: int) -> str:
        if self._timed_out:
            return "timeout"
        if code < 0:
            is_clean = -code in _CLEAN_SIGNALS and self._one("Type", "simple") != "oneshot"
            return "success" if is_clean else "signal"
        return "success" if code in (0, *self._codes("SuccessExitStatus")) else "exit-code"

    def _begins_again(self, end: End) -> bool:
        """systemd.service(5), "Restart=": a stop that was asked for is the end."""
        if self._stopped.is_set() or end.code in self._codes("RestartPreventExitStatus"):
            return False
        if end.code in self._codes("RestartForceExitStatus"):
            return True
        rule = self._one("Restart", "no")
        assert rule in ("no", "on-failure", "always"), rule
        return rule == "always" or (rule == "on-failure" and end.result != "success")

    def _kill_all(self) -> None:
        """Until none is found: who is found may be beginning another."""
        while found := list(self._processes()):
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    def _processes(self) -> Iterator[int]:
        mine = f"{MARK}={self._env[MARK]}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # gone meanwhile, or another user's; of a zombie nothing is left to read
                if mine in (folder / "environ").read_bytes().split(b"\0"):
                    yield int(folder.name)

    def _one(self, key: str, default: str) -> str:
        return self._service.get(key, [default])[-1]

    def _sec(self, key: str) -> float:
        return float(self._one(key, {"RestartSec": "0.1", "TimeoutStopSec": "90"}[key]))

    def _codes(self, key: str) -> list[int]:
        return [int(code) for value in self._service.get(key, []) for code in value.split()]
