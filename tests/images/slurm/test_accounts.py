"""Teams of a Slurm of one's own, judged by the real slurmdbd on MariaDB: shares, limits, who may requeue whom."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from components.core.findings import InputError
from images.slurm.conf import account_words, conf_files
from images.slurm.spec import SlurmHost, SlurmMachine, SlurmRung, SlurmSpec, SlurmTeam
from stacks.config.job_file import JobFile
from stacks.engines.slurm.engine import SlurmEngine
from tests.slurm_cluster import SlurmCluster, begin_munge, end_all, free_port, why_not

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]

_NAMES = ("main-1", "main-2", "main-3")
_DATABASE = ("slurmdbd", "mariadbd", "mariadb-install-db")
_AT_ONCE = "sched_min_interval=0,batch_sched_delay=0,bf_interval=1"


@pytest.fixture(scope="module")
def accounts() -> Iterator[SlurmCluster]:
    if why := why_not() or why_no_database():
        pytest.skip(why)
    with TemporaryDirectory(prefix="gw-acct-", ignore_cleanup_errors=True) as name, begun(Path(name)) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def found(accounts: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, accounts.env[name])
    yield
    accounts.run("scancel", "--quiet", "--full", "--signal=KILL", "--me")
    accounts.run("scancel", "--quiet", "--me")
    accounts.until(("sinfo", "--noheader", "--format=%T %D"), f"idle {len(_NAMES)}")


def why_no_database() -> str:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    missing = [name for name in _DATABASE if shutil.which(name, path=path) is None]
    return f"{', '.join(missing)} not installed (Debian: slurmdbd, mariadb-server-core)" if missing else ""


def spec(folder: Path) -> SlurmSpec:
    machines = tuple(SlurmHost(name, "127.0.0.1") for name in _NAMES)
    return SlurmSpec(
        cluster="lab", release="22.05", head_host="127.0.0.1", head_name=socket.gethostname().split(".")[0].lower(),
        machine=SlurmMachine(cpus=1, memory_gib=0.5), rungs=(SlurmRung("main", "on-demand", len(_NAMES), machines),),
        accounting=True, teams=(SlurmTeam("vision", 1, max_nodes=1), SlurmTeam("speech", 1)), user="root",
        controller_port=free_port(), node_port=free_port(), accounting_port=free_port(), state_dir=str(folder),
        log_dir=str(folder), bin_dir=str(folder / "bin"), munge_socket=f"{folder}/munge.sock",
    )  # fmt: skip


@contextmanager
def begun(folder: Path) -> Iterator[SlurmCluster]:
    """What is rendered, but for what many nodes on one machine cannot have."""
    made = spec(folder)
    write(made, folder)
    outer = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    own = {
        "SLURM_CONF": str(folder / "slurm.conf"), "PATH": f"{outer.get('PATH', '')}:/usr/sbin:/sbin",
        "MYSQL_UNIX_PORT": str(folder / "db.sock"),
    }  # fmt: skip
    cluster = SlurmCluster(folder, {**outer, **own}, nodes=len(_NAMES))
    try:
        begin_munge(cluster)
        begin_database(cluster)
        cluster.begin("slurmdbd", "slurmdbd", "-D")
        cluster.until(("sacctmgr", "--noheader", "list", "qos", "format=name"), "normal")
        cluster.begin_controller()
        cluster.until(("scontrol", "ping"), "UP")
        cluster.until(("sacctmgr", "--noheader", "list", "cluster", "format=cluster"), "lab")
        tell(cluster, made)
        for name in _NAMES:
            cluster.begin(f"slurmd-{name}", "slurmd", "-D", "-N", name)
        cluster.until(("sinfo", "--noheader", "--format=%T %D"), f"idle {len(_NAMES)}")
        yield cluster
    finally:
        end_all(cluster)


def write(made: SlurmSpec, folder: Path) -> None:
    for each in ("state", "spool", "bin"):
        (folder / each).mkdir()
    health = folder / "bin" / "slurm-health.sh"
    health.write_text("#!/bin/sh\nexit 0\n")
    health.chmod(0o755)
    host = socket.gethostname().split(".")[0]
    texts = conf_files(made)
    for there, here in {
        "proctrack/cgroup": "proctrack/linuxproc", "task/cgroup,task/affinity": "task/none",
        "/run/slurm": f"{folder}/slurm", "/var/spool/slurmd": f"{folder}/spool", "KillWait=90": "KillWait=2",
        "nohold_on_prolog_fail": f"nohold_on_prolog_fail,{_AT_ONCE}",
    }.items():  # fmt: skip
        texts = {name: text.replace(there, here) for name, text in texts.items()}
    lines = [
        f"{line} NodeHostname={host} Port={free_port()}" if line.startswith("NodeName=") else line
        for line in texts["slurm.conf"].splitlines()
    ]
    texts["slurm.conf"] = "\n".join([*lines, "SlurmdUser=root", "SlurmdParameters=config_overrides", ""])
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "slurmdbd.conf").chmod(0o600)


def begin_database(cluster: SlurmCluster) -> None:
    """MariaDB that knows its user by the machine's own, as slurm-head.sh has it, and is reached by its socket alone."""
    folder = cluster.folder
    at = (f"--datadir={folder}/db", "--user=root")
    install = ("mariadb-install-db", "--no-defaults", *at, "--auth-root-authentication-method=socket")
    subprocess.run([*install, "--auth-root-socket-user=root"], check=True, capture_output=True, env=cluster.env)
    small = ("--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M", "--skip-networking")
    files = (f"--socket={folder}/db.sock", f"--pid-file={folder}/db.pid")
    cluster.begin("mariadbd", "mariadbd", "--no-defaults", *at, *small, *files)
    cluster.until(("sh", "-c", f"test -S {folder}/db.sock && echo there"), "there")


def submit(cluster: SlurmCluster, script: str, *words: str) -> str:
    folder = cluster.folder
    always = ("--parsable", "--requeue", "--exclusive", f"--output={folder}/job-%j.out", f"--chdir={folder}")
    return cluster.run("sbatch", *always, *words, f"--wrap={script}").strip()


def state(number: str) -> tuple[str, ...]:
    return ("squeue", "--noheader", "--states=all", f"--jobs={number}", "--format=%T %r")


def test_a_team_never_has_more_nodes_than_its_limit_and_others_go_past_it(accounts: SlurmCluster) -> None:
    first = submit(accounts, "sleep 60", "--account=vision")
    accounts.until(state(first), "RUNNING")
    second = submit(accounts, "true", "--account=vision")
    accounts.until(state(second), "PENDING AssocGrpNodeLimit")
    other = submit(accounts, "sleep 60", "--account=speech", "--nodes=2")
    accounts.until(state(other), "RUNNING")
    accounts.run("scancel", first)
    accounts.until(state(second), "COMPLETED")


def test_a_job_that_is_larger_than_its_teams_limit_is_refused_when_it_is_submitted(
    accounts: SlurmCluster, tmp_path: Path
) -> None:
    engine = SlurmEngine(tmp_path / "queue", "main")
    large = JobFile.model_validate(
        {"name": "large", "command": ["true"], "max_hours": 1, "team": "vision", "nodes": {"min": 2, "max": 2}}
    )
    with pytest.raises(InputError, match="AssocGrpNodeLimit"):
        engine.submit(large)
    engine.submit(large.model_copy(update={"team": "speech"}))
    accounts.until(("squeue", "--noheader", "--states=all", "--format=%a %j"), "speech large")


def test_a_high_job_requeues_a_normal_one_and_never_the_other_way_round(accounts: SlurmCluster) -> None:
    normal = submit(accounts, "sleep 60", "--account=speech", "--nodes=3")
    accounts.until(state(normal), "RUNNING")
    low = submit(accounts, "true", "--account=speech", "--qos=low")
    high = submit(accounts, "touch high; sleep 2", "--account=vision", "--qos=high")
    accounts.until(state(high), "COMPLETED")
    assert (accounts.folder / "high").exists()
    assert "PENDING" in accounts.run(*state(low)) or "COMPLETED" in accounts.run(*state(low))
    assert "Requeue=1 Restarts=1" in accounts.run("scontrol", "show", "job", normal)


def test_who_has_used_how_much_is_kept_by_team(accounts: SlurmCluster) -> None:
    number = submit(accounts, "sleep 1", "--account=speech")
    accounts.until(state(number), "COMPLETED")
    words = ("sacct", "--noheader", "--allocations", "--parsable2", f"--jobs={number}", "--format=account,state,nnodes")
    accounts.until(words, "speech|COMPLETED|1")


def test_told_again_nothing_changes_and_a_limit_that_is_gone_is_taken_away(accounts: SlurmCluster) -> None:
    made = spec(accounts.folder)
    listed = ("sacctmgr", "--noheader", "--parsable2", "list", "assoc", "account=vision", "user=")
    shown = (*listed, "format=account,grptres")
    assert "vision|node=1" in accounts.run(*shown)
    free = replace(made, teams=(SlurmTeam("vision", 1), SlurmTeam("speech", 1)))
    try:
        tell(accounts, free)
        assert "vision|\n" in accounts.run(*shown)
    finally:
        tell(accounts, made)
    assert "vision|node=1" in accounts.run(*shown)


def tell(cluster: SlurmCluster, made: SlurmSpec) -> None:
    """As slurm-accounts.sh does: what is there already is code 1."""
    for words in account_words(made, "root"):
        subprocess.run(["sacctmgr", "--immediate", "--quiet", *words], env=cluster.env, capture_output=True, timeout=60)
