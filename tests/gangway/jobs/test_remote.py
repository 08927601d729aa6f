"""An engine at the other end of SSH: the same answers, the same mistakes, and what is said where nobody answers.

`ssh` is a program that runs the words in a shell of this machine, as a server would; with an OpenSSH server on this
machine, also the real client against it.
"""

import getpass
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.components.core.safe_text import leaves
from gangway.jobs.base import EngineAwayError, Phase, follow, read_log
from gangway.jobs.local.engine import LocalQueue
from gangway.jobs.remote import RemoteEngine
from gangway.jobs.sites import get_engine
from gangway.stacks.config import engines_file
from tests.gangway.jobs.test_contract import job, limited, over, until

REPO = Path(__file__).resolve().parents[4]
SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def gangway(tmp_path: Path) -> Path:
    """Gangway at the other end, where a login says something first."""
    return script(
        tmp_path / "there" / "gangway",
        f'echo "Welcome."\ncd "{tmp_path}"\nPYTHONPATH="{REPO}" exec "{sys.executable}" -m gangway.cli "$@"',
    )


@pytest.fixture(params=["shell", pytest.param("sshd", marks=pytest.mark.skipif(
    not Path(SSHD).is_file(), reason="no OpenSSH server on this machine"
))])  # fmt: skip
def ssh(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """First on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    if request.param == "shell":
        script(tmp_path / "bin" / "ssh", 'while [ "$1" != -- ]; do shift; done; shift 2; exec sh -c "$*"')
        yield
        return
    with serving(tmp_path) as configuration:
        script(tmp_path / "bin" / "ssh", f'exec /usr/bin/ssh -F "{configuration}" "$@"')
        yield


@contextmanager
def serving(folder: Path) -> Iterator[Path]:
    """A server for this user alone; the client's configuration, in which it is `login`."""
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "Port": port, "ListenAddress": "127.0.0.1", "HostKey": folder / "host", "PidFile": "none", "UsePAM": "no",
        "AuthorizedKeysFile": folder / "user.pub", "StrictModes": "no", "PermitRootLogin": "yes",
    }  # fmt: skip
    (folder / "sshd_config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    client = {
        "HostName": "127.0.0.1", "Port": port, "User": getpass.getuser(), "IdentityFile": folder / "user",
        "IdentitiesOnly": "yes", "StrictHostKeyChecking": "no", "UserKnownHostsFile": "/dev/null",
    }  # fmt: skip
    configuration = folder / "ssh_config"
    configuration.write_text("Host login\n" + "".join(f"  {name} {value}\n" for name, value in client.items()))
    with suppress(PermissionError):
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with subprocess.Popen([SSHD, "-D", "-e", "-f", folder / "sshd_config"], stderr=subprocess.DEVNULL) as server:
        until_open = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert time.monotonic() < until_open
                time.sleep(0.05)
        yield configuration
        server.terminate()


@pytest.fixture
def engine(ssh: None, gangway: Path, tmp_path: Path) -> RemoteEngine:
    (tmp_path / "jobs").mkdir()
    return RemoteEngine("login", f"local:{tmp_path}/jobs", str(gangway))


@pytest.mark.slow
def test_a_job_runs_there_and_is_followed_from_here(engine: RemoteEngine, tmp_path: Path) -> None:
    job_id = engine.submit(job("for i in 1 2 3; do echo zeile ä $i; done", env={"A": "b c"}))
    pause = limited()
    text = "".join(follow(engine, job_id, lambda: pause(engine.status(job_id))))
    assert "zeile ä 1\nzeile ä 2\nzeile ä 3\n" in text
    found = over(engine, job_id)
    assert (found.phase, found.exit_code) == (Phase.DONE, 0)
    assert [each.id for each in engine.jobs()] == [job_id]
    assert (tmp_path / "jobs" / job_id).is_dir()
    assert (engine.kind, engine.where) == ("local", f"login: {tmp_path}/jobs")


@pytest.mark.slow
def test_a_log_of_several_parts_comes_whole(engine: RemoteEngine, tmp_path: Path) -> None:
    job_id = engine.submit(job("true"))
    over(engine, job_id)
    text = "x" + "ä" * 1_250_000
    (tmp_path / "jobs" / job_id / "log").write_text(text)
    assert "".join(read_log(engine, job_id)) == text


def test_one_is_cancelled_there(engine: RemoteEngine) -> None:
    job_id = engine.submit(job("echo begun; while :; do sleep 0.1; done"))
    until(engine, job_id, lambda found, log: "begun" in log)
    assert not engine.room(job("true")).now
    engine.cancel(job_id)
    assert over(engine, job_id).phase is Phase.CANCELLED
    engine.ensure_begun(job_id)


def test_its_mistakes_are_those_of_there(engine: RemoteEngine) -> None:
    with pytest.raises(InputError, match="has no such job") as unknown:
        engine.status("nobody-1")
    assert unknown.value.fix
    (error,) = engine.findings(job("true", nodes={"min": 2, "max": 2}))
    assert error.path == "nodes.min"
    with pytest.raises(InputError, match="one node, not 2"):
        engine.submit(job("true", nodes={"min": 2, "max": 2}))
    assert list(engine.jobs()) == [], "the connection goes on after a refusal"


@pytest.mark.usefixtures("ssh")
def test_where_gangway_is_not_there_its_place_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there: ") as refused:
        RemoteEngine("login", "local", str(tmp_path / "nowhere" / "gangway")).jobs()
    assert "engine's `program`" in refused.value.allowed
    assert "from the same checkout" in refused.value.fix


def test_where_nobody_answers_it_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    script(tmp_path / "bin" / "ssh", "echo 'ssh: connect to host login port 22: Connection refused' >&2; exit 255")
    with pytest.raises(EngineAwayError, match="Connection refused"):
        RemoteEngine("login", "local").jobs()


def test_who_is_no_gangway_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    script(tmp_path / "bin" / "ssh", "while :; do echo hello || exit; done")
    with pytest.raises(InputError, match="is not from Gangway"):
        RemoteEngine("login", "local").jobs()
    script(tmp_path / "bin" / "ssh", """echo '{"protocol": 0, "version": "0.0.1"}'; cat >/dev/null""")
    with pytest.raises(InputError, match="another protocol"):
        RemoteEngine("login", "local").jobs()


def test_a_connection_that_breaks_is_dialled_anew(engine: RemoteEngine, gangway: Path, tmp_path: Path) -> None:
    assert list(engine.jobs()) == []
    good = gangway.read_text()
    assert engine._pipe is not None
    engine._pipe._process.kill()
    engine._pipe._process.wait()
    with pytest.raises(InputError):
        engine.jobs()
    gangway.write_text(good)
    assert list(engine.jobs()) == []


LOSES = """
import os, sys
from gangway.jobs import serve
answered = serve._answer
def lost(line, engines):
    answer = answered(line, engines)
    if '"submit"' in line and not os.path.exists({lost!r}):
        open({lost!r}, "w").close()
        os._exit(255)
    return answer
serve._answer = lost
serve.serve(sys.stdin, sys.stdout)
"""
"""Who takes a job, and is gone before the answer is."""


@pytest.mark.slow
@pytest.mark.parametrize("answers_again", [True, False])
def test_a_submit_whose_answer_is_lost_leaves_one_job(
    ssh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, answers_again: bool
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    lost = tmp_path / "lost"
    (tmp_path / "loses.py").write_text(LOSES.format(lost=str(lost)))
    refuses = "" if answers_again else f'[ ! -e "{lost}" ] || exit 255\n'
    program = script(
        tmp_path / "there" / "gangway",
        f'{refuses}HOME="{tmp_path}/home" PYTHONPATH="{REPO}" exec "{sys.executable}" "{tmp_path}/loses.py"',
    )
    engine = RemoteEngine("login", f"local:{tmp_path}/jobs", str(program))
    there = LocalQueue(tmp_path / "jobs")
    if answers_again:
        job_id = engine.submit(job("true"))
    else:
        with pytest.raises(EngineAwayError, match="may have been submitted") as away:
            engine.submit(job("true"))
        assert "job list" in away.value.fix
        job_id = there.jobs()[0].id
    assert [each.id for each in there.jobs()] == [job_id]
    assert over(there, job_id).phase is Phase.DONE


@pytest.mark.slow
@pytest.mark.usefixtures("ssh")
def test_a_name_of_the_engines_file_says_by_whom(
    gangway: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"engine": f"local:{tmp_path}/jobs", "via": "login", "program": str(gangway), "region": "hosts:lab/DE"}
    (tmp_path / "engines.yaml").write_text(yaml.safe_dump({"engines": {"box": own}}))
    monkeypatch.setenv(engines_file.VARIABLE, str(tmp_path / "engines.yaml"))
    (tmp_path / "job.yaml").write_text(
        yaml.safe_dump({
            "name": "far", "command": ["sh", "-c", "echo made of $((20 + 22))"], "max_hours": 1,
            "regions": {"residency": ["EU"]},
        })
    )  # fmt: skip
    call = CliRunner().invoke
    submitted = call(app, ["job", "submit", str(tmp_path / "job.yaml"), "--on", "box"], catch_exceptions=False)
    assert submitted.stdout == "far-1\n"
    assert "gangway job logs -f far-1 --on box" in submitted.stderr
    assert call(app, ["job", "wait", "far-1", "--on", "box"], catch_exceptions=False).exit_code == 0
    assert "made of 42" in call(app, ["job", "logs", "far-1", "--on", "box"], catch_exceptions=False).stdout
    told = call(app, ["job", "record", "far-1", "--on", "box", "--json"], catch_exceptions=False).stdout
    record = json.loads(told)
    assert record["figures"]["on_nodes_sec"]["value"] > 0
    assert f"the run folder is on local, login: {tmp_path}/jobs" in record["absent"]["images"]
    assert "does not report" in record["absent"]["failures"]
    with pytest.raises(InputError, match="cannot be reached from here"):
        call(app, ["job", "move", "far-1", "--on", "box", "--to", f"local:{tmp_path}/other"], catch_exceptions=False)
    assert get_engine("box").where == f"login: {tmp_path}/jobs"


FORGED = """#!{python}
import json, sys
print('{{"protocol": 4, "version": "1"}}', flush=True)
odd = {odd!r}
status = dict.fromkeys(("id", "name", "user", "team", "reason"), odd)
status |= {{"phase": "waiting", "nodes": [odd], "starts": 0, "exit_code": None}}
finding = dict.fromkeys(("code", "path", "message", "fix"), odd) | {{"severity": "error"}}
refusal = dict.fromkeys(("place", "problem", "value", "allowed", "fix"), odd) | {{"is_away": False}}
results = {{"jobs": [status], "findings": [finding], "submit": odd, "room": {{"now": True, "reason": odd}}}}
for line in sys.stdin:
    call = json.loads(line)["call"]
    answer = {{"result": json.dumps(results[call])}} if call in results else {{"refusal": refusal}}
    print("{{" if call == "cancel" else json.dumps(answer), flush=True)
"""


@pytest.mark.attack("another machine (SSH)", "sends escape sequences to a terminal")
def test_what_another_machine_answers_is_spelled_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each text of each answer; and what is no answer is a mistake with a name."""
    odd = "\x1b]0;pwned\x07\x1b[31m\u202e\nx"
    (tmp_path / "ssh").write_text(FORGED.format(python=sys.executable, odd=odd))
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    engine = RemoteEngine("login", "local:/jobs")
    wanted = job("true")
    records: list[Any] = [*engine.jobs(), *list(engine.findings(wanted))[-1:], engine.room(wanted)]
    texts = [text for record in records for _, text in leaves(asdict(record)) if type(text) is str]
    assert len([text for text in (*texts, engine.submit(wanted)) if "pwned" in text]) == 6 + 4 + 1 + 1
    assert all(text.isprintable() for text in (*texts, engine.submit(wanted)))
    with pytest.raises(InputError) as refused:
        engine.status("x-1")
    shown = refused.value
    assert "\x1b" not in "".join((shown.place, shown.problem, shown.allowed, shown.fix, str(shown)))
    with pytest.raises(InputError, match="the answer is not from Gangway"):
        engine.cancel("x-1")
