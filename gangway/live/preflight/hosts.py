"""Checks of a stack on existing machines: SSH without a password, root rights, the container engine."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from gangway.components.core.findings import InputError
from gangway.live.preflight.check import Check, NoAnswerError, Result
from gangway.stacks.config.engine_settings import SlurmConfig
from gangway.stacks.plan.plan import Plan
from gangway.stacks.providers.hosts.settings import HostConfig, HostsConfig

CONNECT_SEC, ANSWER_SEC = 5, 20
_UNREACHABLE = 255
"""Exit code of ssh itself."""
_NO_ROOT, _NO_ENGINE = 3, 4


def get_checks(plan: Plan) -> list[Check]:
    """One check per machine. InputError: no ssh here."""
    if shutil.which("ssh") is None:
        raise InputError("hosts", "ssh is not installed here", fix="install OpenSSH's client")
    own = plan.config.section(HostsConfig)
    engine = "" if isinstance(plan.config.engine, SlurmConfig) else own.container_engine
    return [_machine(own, host, engine, index) for index, host in enumerate(own.machines)]


def _machine(own: HostsConfig, host: HostConfig, engine: str, index: int) -> Check:
    user = host.user or own.user
    # Only reads: `up` sets the machine up.
    script = f'[ "$(id -u)" = 0 ] || sudo -n true || exit {_NO_ROOT}'
    if engine:
        script += f"; command -v {engine} || exit {_NO_ENGINE}"

    def run() -> Result:
        done = _ssh(host, user, script)
        why = " ".join(done.stderr.split()[-40:])
        login = f"ssh -p {host.port} {user}@{host.address}"
        if done.returncode == 0:
            return Result.ok(f"logged in, with root rights{f' and {engine}' if engine else ''}")
        if done.returncode == _NO_ROOT:
            return Result.error(f"{user} needs a password for sudo", f"allow sudo without a password for {user}")
        if done.returncode == _NO_ENGINE:
            return Result.error(f"{engine} is not installed", f"install {engine}, or set hosts.container_engine")
        if done.returncode == _UNREACHABLE and own.private_key is not None and "ermission denied" in why:
            raise NoAnswerError(f"{why}; hosts.private_key is a secret of the stack and not used here", login)
        return Result.error(why or f"exit code {done.returncode}", f"make `{login}` work without a password")

    return Check(f"machine {user}@{host.address}", "ssh", run, f"gangway:hosts.machines[{index}]")


def _ssh(host: HostConfig, user: str, script: str) -> "subprocess.CompletedProcess[str]":
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "known_hosts"
        keys.write_text(f"[{host.address}]:{host.port} {host.host_key}\n{host.address} {host.host_key}\n", "utf-8")
        pinned = {"StrictHostKeyChecking": "yes", "UserKnownHostsFile": str(keys)}
        trusting = {"StrictHostKeyChecking": "no", "UserKnownHostsFile": "/dev/null", "LogLevel": "ERROR"}
        options = {"BatchMode": "yes", "ConnectTimeout": str(CONNECT_SEC)}
        options |= trusting if host.host_key is None else pinned
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        argv = ["ssh", *words, "-p", str(host.port), "-l", user, "--", host.address, script]
        try:
            return subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=ANSWER_SEC
            )
        except subprocess.TimeoutExpired:
            raise NoAnswerError(f"no answer within {ANSWER_SEC} s", "look at the network and the machine") from None
