"""`gangway job` on a cluster whose kubectl is a stand-in over a folder: what a user sees, and what is left there."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gangway.cli.jobs.commands import exit_on_signals
from gangway.jobs.kubernetes.kubectl import Kubectl
from tests.gangway.cli.jobs.test_jobs import gangway
from tests.gangway.jobs.kubernetes.test_asking import a_running_job
from tests.pretend_kubectl import PretendKube, pretend_kube

FILE = f"""
name: mine
command: ["true"]
max_hours: 1
image: registry.example.com/any@sha256:{"0" * 64}
"""
_PARTS = ("jobsets", "configmaps", "secrets", "networkpolicies")
_ON = "kubernetes:@team-a/gpu"


@pytest.fixture
def kube(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PretendKube:
    made = pretend_kube(tmp_path / "kube", monkeypatch)
    made.stand_up()
    (tmp_path / "job.yaml").write_text(FILE)
    return made


_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hangs", "number"), [*(("networkpolicies", each) for each in _SIGNALS), ("configmaps", signal.SIGTERM)]
)
def test_a_submit_that_is_told_to_end_leaves_nothing(
    kube: PretendKube, tmp_path: Path, hangs: str, number: signal.Signals
) -> None:
    (kube.folder / "hangs").write_text(hangs)
    words = [sys.executable, "-m", "gangway.cli", "job", "submit", str(tmp_path / "job.yaml"), "--on", _ON]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 300
    while not kube.left(hangs):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)
    made = ["configmaps/mine-1", "networkpolicies/mine-1", "secrets/mine-1"]
    assert kube.left(*_PARTS) == (made[:1] if hangs == "configmaps" else made)
    process.send_signal(number)
    process.communicate()
    assert kube.left(*_PARTS) == []
    assert process.returncode not in (0, 2, -number)


def test_a_signal_unwinds_once_and_what_was_ignored_stays_so() -> None:
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with pytest.raises(SystemExit) as left:
            _told_three_times()
        assert left.value.code == 128 + signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@exit_on_signals()
def _told_three_times() -> None:
    os.kill(os.getpid(), signal.SIGHUP)
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)  # while it is being undone


def test_a_list_of_a_place_that_is_none_is_a_mistake(kube: PretendKube, capsys: pytest.CaptureFixture[str]) -> None:
    assert gangway(["job", "list", "--on", _ON]) == 0
    assert "no jobs" in capsys.readouterr().err
    for place, known in (("@team-a/gpus", "gpu"), ("@team-b/gpu", "team-a"), ("hre@team-a/gpu", "here, there")):
        assert gangway(["job", "list", "--on", f"kubernetes:{place}"]) == 2
        told = capsys.readouterr().err
        assert f"allowed: {known}" in told
        assert "fix:" in told


@pytest.mark.parametrize("way", [["--on", _ON, "--to", "local:{0}"], ["--on", "local:{0}", "--to", _ON]])
def test_of_a_move_to_or_from_a_cluster_it_says_what_to_do_instead(
    kube: PretendKube, tmp_path: Path, capsys: pytest.CaptureFixture[str], way: list[str]
) -> None:
    assert gangway(["job", "move", "mine-1", *(word.format(tmp_path / "queue") for word in way)]) == 2
    told = capsys.readouterr().err
    assert all(word in told for word in ("got:", "@team-a/gpu", "allowed:", "local and slurm", "fix:", "again"))
    assert not (tmp_path / "queue").exists()


def test_the_log_of_a_job_that_writes_on_and_on_has_an_end(
    kube: PretendKube, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    a_running_job(kube)
    lines = list[bytes]()

    def grows(kubectl: Kubectl, *words: str) -> bytes:
        lines.append(f"[pod/p0/node] 2020-01-02T03:04:{len(lines):02}Z line {len(lines)}\n".encode())
        assert len(lines) < 20, "it asks and asks"
        return b"".join(lines)

    monkeypatch.setattr(Kubectl, "logs", grows)
    assert gangway(["job", "logs", "mine-3", "--on", _ON]) == 0
    assert capsys.readouterr().out == "line 0\n"


@pytest.mark.slow
def test_a_submit_says_that_the_network_between_gpus_is_left_out(
    kube: PretendKube, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kube.stand_up(devices={"nvidia.com/gpu": 16, "vpc.amazonaws.com/efa": 64})
    kube.put("Node", "n1", spec={}, status={"allocatable": {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32"}})
    asked = 'nodes: {min: 2, max: 2}\nresources: {cpu: "1", memory: 1Gi, nvidia.com/gpu: "8"%s}\n'
    for more, said in (("", True), (', vpc.amazonaws.com/efa: "32"', False)):
        (tmp_path / "job.yaml").write_text(FILE + asked % more)
        assert gangway(["job", "submit", str(tmp_path / "job.yaml"), "--on", _ON]) == 0
        told = capsys.readouterr().err
        assert ("warning: resources.vpc.amazonaws.com/efa:" in told) == said
        assert ("32" in told) == said
