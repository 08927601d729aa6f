"""The batch script by itself, with pretended commands of Slurm: what a start finds that another one has left."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.images.render import TEMPLATES
from gangway.jobs.base import Phase, Usage, restart_limit
from gangway.jobs.job_folders import RUN_FOLDER
from gangway.jobs.slurm.engine import SlurmEngine
from gangway.jobs.slurm.script import (
    NODE_SCRIPT,
    OWN_JOB,
    batch_env,
    get_max_hours,
    get_minutes,
    image_findings,
    node_env,
    parse_minutes,
    without_allocation,
)
from gangway.stacks.config.job_file import JobFile
from tests.gangway.jobs.test_contract import job, over, until
from tests.registry_standin import registry
from tests.slurm_cluster import SlurmCluster

OWN = {
    "HOME": "/root", "MY_SLURM_NOTES": "a", "SBATCH_ACCOUNT": "vision", "SBATCH_PARTITION": "gpu", "SALLOC_QOS": "low",
    "SLURM_CONF": "/own/slurm.conf", "SLURM_CONF_SERVER": "head", "SLURM_JWT": "s3cr3t", "SLURM_CLUSTERS": "lab",
}  # fmt: skip
GIVEN = {
    "SLURM_JOB_ID": "7", "SLURM_MEM_PER_NODE": "100", "SLURM_GPUS_PER_NODE": "1", "SLURMD_NODENAME": "n1",
    "SLURM_STEP_GPUS": "0", "CUDA_VISIBLE_DEVICES": "0", "SBATCH_MEM_BIND_TYPE": "none",
}  # fmt: skip
APPTAINER = """
[ "$1" = exec ] || exit 9
while [ "${1#docker://}" = "$1" ]; do echo "$1"; shift; done >FOLDER/words
echo "$1" >>FOLDER/words
shift
exec python3 - "$@" <<'PYTHON'
import os, sys
own = {n.removeprefix("APPTAINERENV_"): v for n, v in os.environ.items() if n.startswith("APPTAINERENV_")}
os.execve("/bin/sh", sys.argv[1:], own)
PYTHON
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a job whose steps are done at once."""
    (tmp_path / "programs").mkdir()
    (folder := tmp_path / "case-1").mkdir()
    program(folder, "scontrol", '[ "$1" = ping ] && echo "Slurmctld(primary) at n1 is UP" || echo n1')
    program(folder, "srun", f"echo x >>{folder}/steps")
    program(folder, "scancel", "")
    (folder / "batch.env").write_text(batch_env(job("true"), "case-1", "gpu", Usage()))
    return folder


def program(folder: Path, name: str, script: str) -> None:
    (path := folder.parent / "programs" / name).write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def begun(folder: Path, script: Path = TEMPLATES / "job" / "slurm-batch.sh", **slurms: Any) -> None:
    """Once more, by Slurm, which has the script's output in the job's log."""
    variables = {
        **os.environ, "GANGWAY_SLURM_SEC": "0.1", "PATH": f"{folder.parent / 'programs'}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "7", "SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "n1", **slurms,
    }  # fmt: skip
    words = ["/bin/bash", str(script), str(folder)]
    with (folder / "log").open("a") as log:
        done = subprocess.run(words, env=variables, stdout=log, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("noted", "begins"),
    [("", ["1000"]), ("1000 2000 1\n", ["1000"]), ("500 900 1\n1000 2000 1\n", ["500", "1000"])],
)
def test_a_start_that_was_killed_is_noted_once(folder: Path, noted: str, begins: list[str]) -> None:
    """A kill between the two steps of noting it leaves it in both files, or in the first alone."""
    (folder / "stretches").write_text(noted)
    (folder / "on-nodes").write_text("1000 1\n")
    os.utime(folder / "on-nodes", (3, 3))
    begun(folder)
    lines = (folder / "stretches").read_text().splitlines()
    assert [line.split()[0] for line in lines[:-1]] == begins
    assert int(lines[-1].split()[0]) > 1000, "this start's own"
    assert not (folder / "on-nodes").exists()


def test_a_job_whose_end_is_known_begins_no_more(folder: Path) -> None:
    (folder / "end").write_text("failed 1 1000 its word\n")
    begun(folder)
    assert not (folder / "steps").exists()
    assert (folder / "end").read_text() == "failed 1 1000 its word\n"


def test_one_whose_end_is_not_known_does(folder: Path) -> None:
    begun(folder)
    assert (folder / "steps").read_text() == "x\n"
    assert (folder / "end").read_text().startswith("done 0 ")


def test_an_srun_that_fails_again_and_again_ends_the_job_in_its_own_word(folder: Path) -> None:
    said = "srun: error: Unable to create step for job 7: Invalid account"
    program(folder, "srun", f'echo x >>{folder}/steps; echo "{said}"; exit 2')
    begun(folder)
    word, code, _, *why = (folder / "end").read_text().split()
    assert (word, code) == ("failed", "2")
    assert " ".join(why).endswith(said)
    assert (folder / "steps").read_text() == "x\n" * 5
    assert (folder / "starts").read_text() == "0\n"
    assert not (folder / "failures").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("left", "end"), [(1, ["done", "0"]), (0, ["failed", "5"])])
@pytest.mark.parametrize("failures", [0, 3])
def test_what_is_interrupted_again_and_again_ends(folder: Path, failures: int, left: int, end: list[str]) -> None:
    """Failures and interruptions together."""
    interruptions = restart_limit(job("true")) - left - failures
    (folder / "failures").write_text(f"{failures}\n")
    (folder / "interruptions").write_text(f"{interruptions}\n")
    once = f"echo x >>{folder}/steps; [ $(wc -l <{folder}/steps) = 1 ] || exit 0; echo 75 >{folder}/codes/n1; exit 75"
    program(folder, "srun", once)
    begun(folder)
    assert (folder / "end").read_text().split()[:2] == end
    assert (folder / "interruptions").read_text() == f"{interruptions + 1}\n"


def test_a_job_is_handed_over_once_the_controller_answers(folder: Path) -> None:
    """Without it no node would seem to be left."""
    up, pings = folder / "up", folder / "pings"
    ping = f"echo x >>{pings}; [ $(wc -l <{pings}) -lt 3 ] || touch {up}; [ ! -e {up} ] || echo it is UP"
    program(folder, "scontrol", f'[ "$1" != ping ] || {{ {ping}; exit; }}; echo n1')
    program(folder, "srun", f"echo 4 >{folder}/codes/n1; exit 4")
    program(folder, "sinfo", f"[ -e {up} ] && echo n2")
    program(folder, "sbatch", f'[ -e {up} ] && printf "%s\\n" "$@" >{folder}/handed && echo 8')
    (folder / "sbatch.words").write_text("case-1\n")
    begun(folder)
    assert (folder / "handed").read_text() == "--parsable\n--exclude=n1\ncase-1\n"
    assert (folder / "slurm-id").read_text() == "8\n"
    assert not (folder / "end").exists()


def test_the_next_job_is_given_nothing_of_this_ones_allocation(folder: Path) -> None:
    program(folder, "srun", f"echo 4 >{folder}/codes/n1; exit 4")
    program(folder, "sinfo", "echo n2")
    program(folder, "sbatch", f"env >{folder}/given; echo 8")
    (folder / "sbatch.words").write_text("case-1\n")
    kept: dict[str, Any] = {"SLURM_CONF": "/own/slurm.conf", "SBATCH_ACCOUNT": "vision"}
    begun(folder, SLURM_MEM_PER_CPU="100", SLURMD_NODENAME="n1", CUDA_VISIBLE_DEVICES="0", MINE="a\nSLURM_X=b", **kept)
    names = {line.partition("=")[0] for line in (folder / "given").read_text().splitlines()}
    assert {name for name in names if name.startswith(("SLURM", "SBATCH", "CUDA", "MINE"))} == {
        *kept,
        "MINE",
        "SLURM_X",
    }
    assert (folder / "slurm-id").read_text() == "8\n"


def test_one_that_is_cancelled_while_the_controller_is_away_ends(folder: Path) -> None:
    """Which cannot be told of that, and need not."""
    program(folder, "scontrol", f'[ "$1" = ping ] && touch {folder}/cancel || echo n1')
    program(folder, "srun", f"touch {folder}/tried; exit 1")
    begun(folder)
    assert (folder / "tried").exists()
    assert (folder / "end").read_text().startswith("cancelled 0 ")


@pytest.mark.parametrize(
    ("code", "before", "end"),
    [
        (0, Usage(sec=3600.0), "over-hours 0"),
        (1, Usage(failures=1), "failed 1"),
        (75, Usage(interruptions=restart_limit(job("true", max_restarts=1))), "failed 5"),
        (75, Usage(failures=1, interruptions=restart_limit(job("true", max_restarts=1)) - 1), "failed 5"),
    ],
)
def test_what_the_job_had_used_on_engines_before_counts(folder: Path, code: int, before: Usage, end: str) -> None:
    (folder / "batch.env").write_text(batch_env(job("true", max_restarts=1), "case-1", "gpu", before))
    program(folder, "srun", f"echo x >>{folder}/steps; echo {code} >{folder}/codes/n1; exit {code}")
    begun(folder)
    word, number, _ = (folder / "end").read_text().split(maxsplit=2)
    assert f"{word} {number}" == end
    assert (folder / "steps").exists() == (code != 0)
    if code:
        assert (folder / "steps").read_text() == "x\n"


@pytest.mark.parametrize(
    ("first", "of_job", "each", "asked"),
    [
        ("", "gpu:h100:2", ["(null)", "gpu:h100:2(IDX:0-1)"], ""),
        ("2", "", [], "--gres=gpu:2"),
        ("2", "gpu:h100:4", ["gpu:h100:2(IDX:0-1)"], "--gres=gpu:2"),
        ("2", "gpu:a100:2,nic:4,gpu:h100:2", ["gpu:a100:1,gpu:h100:1"], "--gres=gpu:2"),
        ("2", "gpu:3", ["gpu:2(IDX:0-1)", "gpu:1(IDX:0)"], "--gpus=3"),
        ("8", "gpu:h100:8", ["gpu:h100:8(IDX:0-7)", "(null)"], ""),
    ],
)
def test_a_step_asks_for_all_gpus_of_its_nodes(
    folder: Path, first: str, of_job: str, each: list[str], asked: str
) -> None:
    """Slurm refuses more on a node than that has, and any on one that has none; it may not answer just then."""
    lines = [f"JOB_GRES={of_job}", *(f"Nodes=n1 CPU_IDs=0 Mem=500 GRES={one}" for one in each)]
    says = f"printf '  %s\\n' {shlex.join(lines)}" if of_job else "exit 1"
    program(folder, "scontrol", f'[ "$2" = job ] || {{ echo n1; exit; }}; {says}')
    program(folder, "srun", f'printf "%s\\n" "$@" >{folder}/asked')
    given: dict[str, Any] = {"SLURM_GPUS_ON_NODE": first} if first else {}
    begun(folder, SLURM_NNODES="2", **given)
    words = (folder / "asked").read_text().splitlines()
    assert [word for word in words if word.startswith("--g")] == ([asked] if asked else [])
    assert words[-3:] == ["/bin/bash", f"{folder}/slurm-node.sh", str(folder)]


@pytest.mark.slow
def test_a_clock_that_is_set_ends_no_job_and_bills_none(folder: Path) -> None:
    """By a year at each look, forward and back; interrupted twice, so that its hours are looked at."""
    for year in (1, -1):
        count = f"n=$(cat {folder}/n 2>/dev/null || echo 0); echo $((n + 1)) >{folder}/n"
        program(folder, "date", f"{count}; echo $((1700000000000 + n * {year} * 31536000000))")
        steps = f"echo x >>{folder}/steps; n=$(($(wc -l <{folder}/steps) % 3))"
        program(folder, "srun", f"{steps}; [ $n = 0 ] || {{ echo 75 >{folder}/codes/n1; exit 75; }}")
        begun(folder)
        assert (folder / "end").read_text().startswith("done 0 ")
        lengths = [
            int(end) - int(began) for began, end, _ in map(str.split, (folder / "stretches").read_text().splitlines())
        ]
        assert len(lengths) == 3
        assert all(0 <= length < 60_000 for length in lengths), lengths
        for name in ("end", "stretches", "n", "interruptions"):
            (folder / name).unlink()


@pytest.mark.parametrize(("up", "length"), [("130.00", 30_000), ("90100.00", 0)])
def test_hours_in_which_the_machine_slept_do_not_count(folder: Path, up: str, length: int) -> None:
    """`nap`, by which the script says that it lives, stands still meanwhile."""
    (clock := folder / "uptime").write_text("100.00 1.00\n")
    program(folder, "srun", f"echo '{up} 1.00' >{clock}")
    begun(folder, template(folder, clock))
    began, end, _ = map(int, (folder / "stretches").read_text().split())
    assert end - began == length


def template(folder: Path, clock: Path) -> Path:
    (script := folder.parent / "slurm-batch.sh").write_text(
        (TEMPLATES / "job" / "slurm-batch.sh").read_text().replace("/proc/uptime", str(clock))
    )
    return script


@pytest.mark.parametrize(
    ("limit", "minutes"),
    [
        ("infinite", None),
        ("30:00", 30),
        ("4:30:00", 270),
        ("1-02:30:00", 1590),
        ("2-00:00:00", 2880),
        ("UNLIMITED", None),
    ],
)
def test_a_limit_is_read_as_slurm_writes_it(limit: str, minutes: int | None) -> None:
    assert parse_minutes(limit) == minutes


@given(st.integers(1, 60 * 24 * 28), st.integers(1, 3600))
def test_the_hours_that_are_proposed_fit(minutes: int, grace_sec: int) -> None:
    job = JobFile(name="a", command=("true",), max_hours=1, grace_sec=grace_sec)
    hours = get_max_hours(job, minutes)
    if hours > 0:
        assert get_minutes(job.model_copy(update={"max_hours": hours})) <= minutes
        assert get_minutes(job.model_copy(update={"max_hours": hours + 0.02})) > minutes - 1


def names_of_shells() -> list[str]:
    """Variables that a shell has by itself, or makes something of."""
    known = set[str]()
    for words in (["bash"], ["bash", "--posix"]):
        said = subprocess.run([*words, "-c", "compgen -v"], env={"PATH": os.environ["PATH"]}, capture_output=True)
        known |= set(said.stdout.decode().split())
    return sorted(known | {"RANDOM", "SRANDOM", "SECONDS", "IFS", "PATH", "CDPATH", "ENV", "BASH_ENV", "TMOUT", "HOME"})


def accepted() -> dict[str, str]:
    """Of these what a job may set."""
    found = {}
    for name in names_of_shells():
        try:
            JobFile(name="a", command=("true",), max_hours=1, env={name: "7"})
        except ValueError:
            continue
        found[name] = "7"
    return found


def test_names_that_shells_compute_are_refused() -> None:
    assert set(names_of_shells()) - set(accepted()) >= {"RANDOM", "OPTIND", "GROUPS", "UID", "PWD", "_"}
    assert {"PATH", "HOME", "IFS"} & set(accepted()) == {"PATH", "HOME"}


@pytest.mark.parametrize("shell", [["/bin/sh"], ["/bin/bash", "--posix"]])
def test_a_command_finds_the_variables_of_its_job(
    pretended: Callable[[str, str], None], tmp_path: Path, shell: list[str]
) -> None:
    """Through the scripts of a node; on many machines sh is bash."""
    pretended("scontrol", "echo NodeAddr=127.0.0.1")
    (tmp_path / "codes").mkdir()
    (tmp_path / OWN_JOB).write_text(f'#!/bin/sh\nexec {" ".join(shell)} "{TEMPLATES}/job/{OWN_JOB}" "$@"\n')
    job = JobFile(
        name="a",
        command=("/usr/bin/env", "-0"),
        max_hours=1,
        workdir=str(tmp_path),
        env={"LINES": "a\nb", **accepted()},
    )
    (tmp_path / "node.env").write_text(node_env(job, tmp_path, sys.executable))
    slurms = {"SLURM_JOB_NODELIST": "n1", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURMD_NODENAME": "n1"}
    done = subprocess.run(
        ["/bin/bash", TEMPLATES / "job" / NODE_SCRIPT, tmp_path], env={**os.environ, **slurms}, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
    found = dict(each.split("=", 1) for each in done.stdout.decode().split("\0") if each)
    assert {name: found.get(name) for name in job.env} == job.env


def test_what_an_allocation_has_given_stays_there() -> None:
    assert without_allocation({**OWN, **GIVEN}) == OWN


def test_outside_of_one_all_are_somebodys_own() -> None:
    own = {**OWN, "SLURM_MPI_TYPE": "pmix", "CUDA_VISIBLE_DEVICES": "0"}
    assert without_allocation(own) == own


def test_an_image_runs_the_job_by_apptainer_with_the_variables_of_its_job(
    pretended: Callable[[str, str], None], tmp_path: Path
) -> None:
    pretended("scontrol", "echo NodeAddr=127.0.0.1")
    pretended("apptainer", APPTAINER.replace("FOLDER", str(tmp_path)))
    for name in ("codes", RUN_FOLDER):
        (tmp_path / name).mkdir()
    shutil.copyfile(TEMPLATES / "job" / OWN_JOB, tmp_path / OWN_JOB)
    image = f"registry.example.com/mine@sha256:{'0' * 64}"
    env = {"LINES": "a\nb", "HOME": "/root/of mine", "PATH": "/bin:/usr/bin"}
    words = ("/usr/bin/env", "-0")
    job = JobFile(name="a", command=words, max_hours=1, image=image, env=env, workdir="/work here", outputs=OUTPUTS)
    (tmp_path / "node.env").write_text(node_env(job, tmp_path, sys.executable))
    slurms = {"SLURM_JOB_NODELIST": "n1", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURMD_NODENAME": "n1"}
    done = subprocess.run(
        ["/bin/bash", TEMPLATES / "job" / NODE_SCRIPT, tmp_path], env={**os.environ, **slurms}, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
    said = (tmp_path / "words").read_text().splitlines()
    assert said[-1] == f"docker://{image}"
    assert said[said.index("--home") + 1] == f"{tmp_path}/home:/root/of mine"
    assert [mount for word, mount in pairwise(said) if word == "--bind"] == [
        str(tmp_path),
        *(f"{tmp_path}/{RUN_FOLDER}/outputs{each}:{each}" for each in OUTPUTS),
    ]
    assert said[said.index("--pwd") + 1] == "/work here"
    found = dict(each.split("=", 1) for each in done.stdout.decode().split("\0") if each)
    assert {name: found.get(name) for name in env} == env
    assert found["GANGWAY_RUN_DIR"] == str(tmp_path / RUN_FOLDER)
    assert not {name for name in found if name.startswith(("SLURM", "APPTAINER"))}


def test_a_node_without_apptainer_fails_the_job_once_and_says_what_to_install(
    pretended: Callable[[str, str], None], tmp_path: Path
) -> None:
    pretended("scontrol", "echo NodeAddr=127.0.0.1")
    for name in ("bash", "cut", "dirname", "echo", "grep", "head", "mv", "sleep"):  # all that a node has
        found = shutil.which(name)
        assert found is not None
        (tmp_path / "programs" / name).unlink(missing_ok=True)
        (tmp_path / "programs" / name).symlink_to(found)
    for name in ("codes", RUN_FOLDER):
        (tmp_path / name).mkdir()
    image = f"registry.example.com/mine@sha256:{'0' * 64}"
    job = JobFile(name="a", command=("true",), max_hours=1, image=image)
    (tmp_path / "node.env").write_text(node_env(job, tmp_path, sys.executable))
    env = {
        "PATH": str(tmp_path / "programs"), "SLURM_JOB_NODELIST": "n1", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0",
        "SLURMD_NODENAME": "n1",
    }  # fmt: skip
    done = subprocess.run(
        ["/bin/bash", TEMPLATES / "job" / NODE_SCRIPT, tmp_path], env=env, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (2, "")
    assert "install Apptainer" in done.stdout
    assert "n1" in done.stdout
    assert (tmp_path / "codes" / "n1").read_text() == "2\n", "bad input, which is not tried again"


@pytest.mark.parametrize(("has_it", "errors"), [(True, []), (False, ["job.image"])])
def test_an_image_takes_apptainer(
    pretended: Callable[[str, str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    has_it: bool,
    errors: list[str],
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    if has_it:
        pretended("apptainer", "")
    job = JobFile(name="a", command=("true",), max_hours=1, image=f"registry.example.com/mine@sha256:{'0' * 64}")
    assert [each.code for each in image_findings(job, tmp_path)] == errors
    assert not list(image_findings(job.model_copy(update={"image": None}), tmp_path))


OUTPUTS = ("/mnt/results", "/mnt/more")


@pytest.mark.parametrize(
    ("folder", "keys", "wrong"),
    [
        ("/jobs", {"outputs": OUTPUTS}, []),
        ("/jobs", {"outputs": OUTPUTS, "image": None}, ["outputs"]),
        ("/mnt/results/jobs", {"outputs": OUTPUTS}, ["outputs"]),
        ("/jobs", {"outputs": OUTPUTS, "env": {"HOME": "/mnt"}}, ["outputs", "outputs"]),
        ("/jobs", {"env": {"HOME": "/mine:ro"}}, ["env.HOME"]),
        ("/jobs,of mine", {}, ["--on slurm"]),
        ("/a:b", {}, ["--on slurm"]),
    ],
)
def test_mounts_that_apptainer_cannot_make_are_refused(
    pretended: Callable[[str, str], None], folder: str, keys: Mapping[str, object], wrong: list[str]
) -> None:
    pretended("apptainer", "")
    image = f"registry.example.com/mine@sha256:{'0' * 64}"
    job = JobFile.model_validate({"name": "a", "command": ["true"], "max_hours": 1, "image": image, **keys})
    assert [each.path for each in image_findings(job, Path(folder))] == wrong


BUSYBOX = Path("/bin/busybox")


@pytest.mark.slurm
@pytest.mark.xdist_group("slurm")
@pytest.mark.skipif(
    shutil.which("apptainer") is None or not BUSYBOX.exists(), reason="no apptainer and static busybox here"
)
def test_a_command_runs_in_its_image_and_is_told_to_end(
    cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real: Slurm, Apptainer and its fetching of the image; pretended: the registry."""
    for name in ("queue", "cache"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("APPTAINER_NOHTTPS", "1")
    monkeypatch.setenv("APPTAINER_CACHEDIR", str(tmp_path / "cache"))
    engine = SlurmEngine(tmp_path / "queue", "gpu")
    waits = 'echo "begun $MINE in $PWD"; trap "touch saved; exit 75" TERM; while :; do sleep 0.1; done'
    script = f"cat /etc/only-in-the-image || exit 3; test -e saved && exit 0; {waits}"
    with registry(BUSYBOX) as image:
        job_id = engine.submit(job(script, image=image, env={"MINE": "a, b"}, grace_sec=20))
        until(engine, job_id, lambda found, log: "begun a, b in " in log)
        number = (tmp_path / "queue" / job_id / "slurm-id").read_text().strip()
        cluster.run("scancel", "--signal=TERM", f"{number}.0")
        found = over(engine, job_id)
        assert (found.phase, found.starts) == (Phase.DONE, 2), engine.log(job_id)[0]
        assert (tmp_path / "queue" / job_id / RUN_FOLDER / "saved").exists()
        again = engine.submit(job(waits, image=image, grace_sec=20))
        until(engine, again, lambda found, log: "begun" in log)
        engine.cancel(again)
        assert over(engine, again).phase is Phase.CANCELLED
        assert (tmp_path / "queue" / again / RUN_FOLDER / "saved").exists()
        writes = job("cd /mnt/results; test -e seen || { touch seen; exit 75; }", image=image, outputs=["/mnt/results"])
        found = over(engine, kept := engine.submit(writes))
        assert (found.phase, found.starts) == (Phase.DONE, 2), engine.log(kept)[0]
        assert (tmp_path / "queue" / kept / RUN_FOLDER / "outputs" / "mnt" / "results" / "seen").exists()
