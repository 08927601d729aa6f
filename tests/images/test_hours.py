"""hours.sh: a pod's program ends when its job's hours are over, counted over all starts, in a real shell."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from gangway.images.render import TEMPLATES

SCRIPT = TEMPLATES / "job" / "hours.sh"
_LONG = "while :; do sleep 0.05; done"


def words(kept: Path, script: str, *, sec: int, grace_sec: int = 60) -> list[str]:
    return ["/bin/sh", str(SCRIPT), str(sec), str(grace_sec), str(kept), "sh", "-c", script]


def ended(argv: list[str], index: int = 0) -> int:
    return subprocess.run(argv, env={**os.environ, "JOB_COMPLETION_INDEX": str(index)}, timeout=60).returncode


@pytest.mark.parametrize("code", [0, 1, 2, 4, 75, 137])
def test_before_its_hours_are_over_a_program_ends_as_it_does(tmp_path: Path, code: int) -> None:
    assert ended(words(tmp_path / "used", f"exit {code}", sec=3600)) == code


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "code"),
    [
        (f"trap 'exit 75' TERM; {_LONG}", 6),
        (f"trap 'exit 1' TERM; {_LONG}", 6),
        (f"trap 'exit 0' TERM; {_LONG}", 0),
        ("exec sleep 600", 6),
        (f"trap '' TERM; {_LONG}", 6),
    ],
)
def test_a_program_is_told_when_its_hours_are_over_and_killed_after_its_grace(
    tmp_path: Path, script: str, code: int
) -> None:
    kept = tmp_path / "used"
    assert ended(words(kept, script, sec=1, grace_sec=1)) == code
    assert int(kept.read_text()) >= 1
    assert ended(words(kept, f"touch {tmp_path}/begun", sec=1)) == 6, "nor is it begun again"
    assert not (tmp_path / "begun").exists()


def test_what_earlier_starts_had_counts(tmp_path: Path) -> None:
    kept = tmp_path / "used"
    kept.write_text("3599\n")
    assert ended(words(kept, f"trap 'exit 75' TERM; {_LONG}", sec=3600)) == 6
    assert int(kept.read_text()) >= 3600


@pytest.mark.slow
def test_other_pods_go_by_the_first_ones_count(tmp_path: Path) -> None:
    kept = tmp_path / "used"
    argv = words(kept, f"trap 'exit 75' TERM; echo 9999 >{kept}; {_LONG}", sec=9000)
    assert ended(argv, index=1) == 6
    assert kept.read_text() == "9999\n", "and leave it as it is"


@pytest.mark.slow
def test_other_pods_wait_for_the_first_ones_node_without_counting(tmp_path: Path) -> None:
    assert ended(words(tmp_path / "used", "sleep 3", sec=1), index=1) == 0


@pytest.mark.slow
def test_other_pods_count_on_when_the_first_one_is_done(tmp_path: Path) -> None:
    kept = tmp_path / "used"
    assert ended(words(kept, f"trap 'exit 75' TERM; echo 1 >{kept}; {_LONG}", sec=4), index=1) == 6


def test_what_is_no_number_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "used").write_text("many\n")
    assert ended(words(tmp_path / "used", "exit 0", sec=60)) == 0


def test_where_the_run_folder_cannot_be_written_to_hours_end_all_the_same(tmp_path: Path) -> None:
    assert ended(words(tmp_path / "none" / "used", f"trap 'exit 75' TERM; {_LONG}", sec=1)) == 6


def test_a_signal_goes_on_to_the_program_and_its_code_counts(tmp_path: Path) -> None:
    argv = words(tmp_path / "used", f"trap 'exit 75' TERM; echo up; {_LONG}", sec=3600)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 75


def test_the_program_sees_nothing_of_it(tmp_path: Path) -> None:
    argv = [*words(tmp_path / "used", "", sec=60)[:-3], "/usr/bin/env"]
    done = subprocess.run(argv, env={"A": "1", "PATH": "/nowhere"}, capture_output=True, text=True, timeout=60)
    assert {line.partition("=")[0] for line in done.stdout.splitlines()} <= {"A", "PATH", "PWD", "OLDPWD", "SHLVL", "_"}
    assert "PATH=/nowhere\n" in done.stdout


@pytest.mark.slow
def test_what_the_machine_slept_does_not_count(tmp_path: Path) -> None:
    """The first pod's count is by the machine's clock since boot, which goes on in sleep, and by its own pauses."""
    kept, clock = tmp_path / "used", tmp_path / "uptime"
    clock.write_text("100.00 1.00\n")
    text = (
        SCRIPT.read_text().replace("/proc/uptime", str(clock)).replace("-lt 5 ] || _gw_step=5", "-lt 1 ] || _gw_step=1")
    )
    (script := tmp_path / "hours.sh").write_text(text)
    program = (
        f'wait_for() {{ until [ "$(cat {kept} 2>/dev/null)" = $1 ]; do sleep 0.05; done; }}; '
        f"wait_for 0; echo '9000.00 1' >{clock}; wait_for 1; echo '9030.00 1' >{clock}; wait_for 31; exit 3"
    )
    argv = words(kept, program, sec=3600)
    argv[1] = str(script)
    assert ended(argv) == 3


ROOT = Path(__file__).parents[2]
WALL = re.compile(
    r"date \+%s|date -d"
    r"|\bSECONDS(?! STACK)\b|EPOCH(?:SECONDS|REALTIME)|stat -c %\.?\d*[XYZW]|find .*-[acm](?:min|time)\b|-newer"
    r"|\btime\.time(?:_ns)?\(|datetime\.now\(|datetime\.utcnow\(|st_[acm]time"
)
STAMP = "a date that people read, or part of a name"
OTHERS = "compared with the date of another machine, whose clock is no other"
ALLOWED = {
    "images/node/gcp/api.py": (1, STAMP),
    "images/node/azure/api.py": (1, STAMP),
    "images/node/gcp/fallback.py": (1, STAMP),
    "images/node/run_folder.py": (1, "whether a file has changed"),
    "images/templates/aws/cloud.sh": (1, STAMP),
    "images/templates/job/own-job.sh": (1, STAMP),
    "images/templates/job/own-node.sh": (4, STAMP),
    "images/templates/job/slurm-batch.sh": (3, "two dates, and the length of a stretch as its script has kept it"),
    "images/templates/node/common.sh": (1, OTHERS),
    "images/templates/node/watch-idle.sh": (3, OTHERS),
    "gangway/jobs/kubernetes/engine.py": (3, OTHERS),
    "gangway/jobs/kubernetes/objects.py": (1, OTHERS),
}
PLACES = ("images/templates", "images/node", "gangway/jobs/kubernetes", "gangway/jobs/systemd")


def readings(text: str) -> list[str]:
    """The lines that read the wall clock, without comments."""
    return [line.strip() for line in text.splitlines() if WALL.search(re.sub(r"(^|\s)#.*", "", line))]


def test_every_reading_of_the_wall_clock_is_a_date_and_no_duration() -> None:
    files = [path for place in PLACES for path in (ROOT / place).rglob("*") if path.suffix in (".sh", ".j2", ".py")]
    assert len(files) > 100
    found = {str(path.relative_to(ROOT)): lines for path in files if (lines := readings(path.read_text("utf-8")))}
    assert {
        name: (len(lines), lines) for name, lines in found.items() if len(lines) != ALLOWED.get(name, (0,))[0]
    } == {}
    assert found.keys() == ALLOWED.keys()
