"""A real replay: the same policies drive processes on this machine, which work, save on SIGTERM and go on later; the
makespan is held against the simulated one.
"""

import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from gangway.sim.schedule.jobs import Job
from gangway.sim.schedule.policies import POLICIES, JobView, View
from gangway.sim.schedule.simulator import get_figures, simulate
from tests.gangway.sim.schedule.builders import job, plain

# Works in steps of 20 ms; the file holds the seconds done, written at the end or when told to stop.
WORKER = """
import pathlib, signal, sys, time
path, work = pathlib.Path(sys.argv[1]), float(sys.argv[2])
done = float(path.read_text()) if path.exists() else 0.0
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))
pathlib.Path(sys.argv[1] + ".started").touch()
last = time.monotonic()
while done < work and not told:
    time.sleep(0.02)
    now = time.monotonic()
    done, last = done + now - last, now
path.write_text(str(done))
"""
SLOTS = 2
TRACE = [("a", 0.0, 1, 6.0), ("b", 0.5, 1, 3.0), ("wide", 1.0, 2, 2.0), ("c", 1.5, 1, 1.0), ("d", 2.0, 1, 4.0)]
"""Name, second of submission, slots, seconds of work."""


@dataclass
class Real:
    """A job and its process."""

    job: Job
    file: Path
    process: subprocess.Popen[bytes] | None = None
    begun: float = 0.0
    base: float = 0.0

    def start(self, now: float) -> None:
        self.base = float(self.file.read_text()) if self.file.exists() else 0.0
        self.begun = now
        work = self.job.images / self.job.ask.gpus_min
        self.process = subprocess.Popen([sys.executable, "-S", "-c", WORKER, str(self.file), str(work)])

    def stop(self) -> None:
        assert self.process is not None, "only what runs is stopped"
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        self.process = None

    def view(self, now: float) -> JobView:
        gpus = self.job.ask.gpus_min if self.process else 0
        done = self.base + (now - self.begun if self.process else 0.0)
        left_sec = self.job.images / self.job.ask.gpus_min - done
        return JobView(self.job.ask, gpus, done * self.job.ask.gpus_min, 0.0, 0.0, lambda _: left_sec)


def replay(jobs: list[Job], policy_name: str, folder: Path) -> float:
    """Seconds from the first submission to the last end."""
    policy, begin = POLICIES[policy_name](), time.monotonic()
    coming = [Real(one, folder / one.ask.name) for one in jobs]
    here: list[Real] = []
    while coming or here:
        now = time.monotonic() - begin
        came = [one for one in coming if one.job.ask.submit_sec <= now]
        ended = [one for one in here if one.process is not None and one.process.poll() is not None]
        for one in ended:
            assert one.process is not None
            assert one.process.returncode == 0
            policy.ended(one.job.ask, one.job.images)
        coming = [one for one in coming if one not in came]
        here = [one for one in here if one not in ended] + came
        if came or ended:
            grants = policy.decide(View(now, SLOTS, [one.view(now) for one in here], 0.1))
            for one in here:
                if one.process is not None and one.job.ask.name not in grants:
                    one.stop()
            for one in here:
                if one.process is None and one.job.ask.name in grants:
                    one.start(now)
        time.sleep(0.01)
    return time.monotonic() - begin


def start_sec(folder: Path) -> float:
    """Of a process that has nothing to do, as it is now on this machine."""
    begin = time.monotonic()
    subprocess.run([sys.executable, "-S", "-c", WORKER, str(folder / "none"), "0"], check=True)
    return time.monotonic() - begin


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fifo", "backfill", "shortest"])
def test_the_simulated_makespan_is_the_real_one(policy: str, tmp_path: Path) -> None:
    jobs = [job(name, submit, (gpus, gpus), work) for name, submit, gpus, work in TRACE]
    cluster = plain(SLOTS, start_sec=start_sec(tmp_path))
    simulated = get_figures(simulate(jobs, cluster, POLICIES[policy]())).makespan_hours * 3600
    real = replay(jobs, policy, tmp_path)
    print(f"{policy}: simulated {simulated:.2f} s, real {real:.2f} s, error {simulated / real - 1:+.1%}")
    assert simulated == pytest.approx(real, rel=0.1)
