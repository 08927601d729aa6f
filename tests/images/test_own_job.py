"""own-job.sh: what a command's end means, in a real shell. Under torchrun engines' contract test has it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from gangway.images.render import TEMPLATES
from tests.hostile_store import attack_store

SCRIPT = TEMPLATES / "job" / "own-job.sh"


def ended(script: str, **variables: str) -> int:
    words = ["/bin/sh", str(SCRIPT), "--", "sh", "-c", script]
    return subprocess.run(words, env={**os.environ, **variables}, timeout=60).returncode


@pytest.mark.parametrize(
    ("code", "meaning"), [(0, 0), (2, 2), (4, 4), (75, 75), (1, 1), (3, 1), (126, 2), (127, 2), (143, 1), (255, 1)]
)
def test_codes_as_they_are_usually(code: int, meaning: int) -> None:
    assert ended(f"exit {code}") == meaning


@pytest.mark.parametrize(("code", "meaning"), [(0, 0), (11, 75), (12, 75), (13, 2), (14, 4), (75, 1), (2, 1), (4, 1)])
def test_codes_of_ones_own(code: int, meaning: int) -> None:
    own = {"INTERRUPTED": "11 12", "BAD_INPUT": "13", "UNFIT": "14"}
    assert ended(f"exit {code}", **{f"GANGWAY_CODES_{name}": value for name, value in own.items()}) == meaning


def test_a_program_that_is_not_there_is_bad_input() -> None:
    assert subprocess.run(["/bin/sh", str(SCRIPT), "--", "/no/such/program"], stderr=subprocess.PIPE).returncode == 2


@pytest.mark.parametrize(
    ("script", "meaning"),
    [
        ("trap 'exit 75' TERM; echo up; while :; do sleep 0.05; done", 75),
        ("trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done", 0),
        ("trap 'exit 2' TERM; echo up; while :; do sleep 0.05; done", 2),
        ("trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done", 1),
        ("echo up; exec sleep 600", 75),
    ],
)
def test_who_is_told_is_told_by_a_signal_and_a_file_and_may_answer(tmp_path: Path, script: str, meaning: int) -> None:
    notices = tmp_path / "notices.jsonl"
    words = ["/bin/sh", str(SCRIPT), "--", "sh", "-c", script]
    variables = {**os.environ, "GANGWAY_NOTICES": str(notices)}
    with subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        assert not notices.exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == meaning
    assert notices.read_text().count('"kind": "stop"') == 1


@pytest.mark.parametrize("words", [["run", "echo", "hi"], ["exit", "0"], ["told"]])
def test_a_command_is_a_program_and_nothing_of_the_shells(words: list[str]) -> None:
    done = subprocess.run(["/bin/sh", str(SCRIPT), "--", *words], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")


def test_its_environment_is_the_jobs_alone() -> None:
    mine = dict.fromkeys(("child", "code", "all", "each", "file", "word", "before", "is_told", "folder"), "mine")
    words = ["/bin/sh", str(SCRIPT), "--", "env"]
    told = subprocess.run(words, env={**os.environ, **mine}, capture_output=True, text=True).stdout.splitlines()
    assert {f"{name}=mine" for name in mine} <= set(told)


def test_the_commands_own_code_is_in_the_log() -> None:
    words = ["/bin/sh", str(SCRIPT), "--", "sh", "-c", "exit 17"]
    assert "ended with 17" in subprocess.run(words, capture_output=True, text=True).stderr


@pytest.mark.parametrize(("code", "is_held"), [(0, False), (2, False), (4, False), (75, False), (9, True), (143, True)])
def test_where_others_end_with_it_a_plain_failure_is_the_last_to_say_so(code: int, is_held: bool) -> None:
    # A length that sleep does not take, and says so.
    words = ["/bin/sh", str(SCRIPT), "--", "sh", "-c", f"exit {code}"]
    variables = {**os.environ, "GANGWAY_HOLD_BACK_SEC": "for-a-while"}
    done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=60)
    assert done.returncode == (1 if is_held else code)
    assert ("for-a-while" in done.stderr) == is_held


def test_who_holds_back_leaves_when_it_is_told_to() -> None:
    words = ["/bin/sh", str(SCRIPT), "--", "sh", "-c", "exit 9"]
    variables = {**os.environ, "GANGWAY_HOLD_BACK_SEC": "600"}
    with subprocess.Popen(words, env=variables, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "ended with 9" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 1


ENDS = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: os._exit(int(sys.argv[1])))
print("up", flush=True)
while True:
    signal.pause()
"""


@pytest.mark.parametrize("code", [0, 2])
def test_a_signal_to_all_processes_at_once_costs_no_code(code: int) -> None:
    """As Slurm sends it: the command ends while the script is still hearing it. `sh` is dash here; with bash as sh the
    code of a command that ends in that very moment may be lost, and it is begun again.
    """
    if "dash" not in os.path.realpath("/bin/sh"):
        pytest.skip("/bin/sh is no dash")
    for _ in range(20):
        words = ["/bin/sh", str(SCRIPT), "--", sys.executable, "-c", ENDS, str(code)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            os.killpg(process.pid, signal.SIGTERM)
            assert process.wait(60) == code


def test_words_reach_the_command_as_they_are() -> None:
    odd = ["a b", "", "$HOME", "--", "*", 'x"y', "ä\nö"]
    words = ["/bin/sh", str(SCRIPT), "--", "printf", "<%s>", *odd]
    assert subprocess.run(words, capture_output=True, text=True).stdout == "".join(f"<{word}>" for word in odd)


def test_a_path_of_the_jobs_own_costs_no_code(tmp_path: Path) -> None:
    torchrun = tmp_path / "torchrun"
    torchrun.write_text('#!/bin/sh\nwhile [ "$1" != --no-python ]; do shift; done; shift; exec "$@"\n')
    torchrun.chmod(0o755)
    words = ["/bin/sh", str(SCRIPT), "--standalone", "--", "/bin/sh", "-c", 'echo "$PATH"; exit 4']
    done = subprocess.run(words, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (4, f"{tmp_path}\n")


def test_a_path_of_the_jobs_own_costs_no_notice(tmp_path: Path) -> None:
    notices = tmp_path / "notices.jsonl"
    words = ["/bin/sh", str(SCRIPT), "--", "/bin/sh", "-c", "echo up; exec /bin/sleep 600"]
    variables = {"PATH": str(tmp_path), "GANGWAY_NOTICES": str(notices)}
    with subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 75
    assert json.loads(notices.read_text())["seen_at"] > 0


def test_without_torchrun_it_is_bad_input(tmp_path: Path) -> None:
    words = ["/bin/sh", str(SCRIPT), "--standalone", "--", "true"]
    variables = {"PATH": f"{tmp_path}:/bin:/usr/bin"}
    assert subprocess.run(words, env=variables, stderr=subprocess.PIPE).returncode == 2


def listening(process: psutil.Process) -> set[int]:
    """Ports of a process and its children, at any address."""
    found = [each for one in (process, *process.children(recursive=True)) for each in one.net_connections("tcp")]
    return {each.laddr.port for each in found if each.status == psutil.CONN_LISTEN}


@pytest.mark.slow
@pytest.mark.attack("another user of the machine", "code in a command's torchrun")
def test_torchruns_of_one_node_run_no_code_of_their_neighbours(tmp_path: Path) -> None:
    mark, go = tmp_path / "mark", tmp_path / "go"
    waits = f"echo up; while [ ! -e {go} ]; do sleep 0.1; done"
    torchrun = ["--standalone", "--nnodes=1", "--nproc-per-node=2", "--max-restarts=0"]
    words = ["/bin/sh", str(SCRIPT), *torchrun, "--", "/bin/sh", "-c", waits]
    variables = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        try:
            attack_store(mark, listening(psutil.Process(process.pid)))
            time.sleep(5)  # torchrun reads its state some times a second
        finally:
            go.touch()
        assert process.wait(120) == 0
    assert not mark.exists()
