"""Teams of a Slurm of one's own, judged by the real slurmdbd on MariaDB: shares, limits, who may requeue whom."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gangway.components.core.findings import InputError
from gangway.images.render import TEMPLATES
from gangway.images.slurm.conf import (
    SlurmHost,
    SlurmMachine,
    SlurmRung,
    SlurmSpec,
    SlurmTeam,
    account_words,
    conf_files,
)
from gangway.jobs import spending
from gangway.jobs.sites import Nodes, Site
from gangway.jobs.slurm.engine import SlurmEngine
from gangway.stacks.config.job_file import JobFile
from gangway.stacks.config.sections import LimitsConfig
from tests.slurm_cluster import SlurmCluster, begin_munge, end_all, free_port, why_not

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]

_NAMES = ("main-1", "main-2", "main-3")
_DATABASE = ("slurmdbd", "mariadbd", "mariadb-install-db")
_SCRIPTS = ("slurm-accounts.sh", "slurm-head.sh", "slurm-save.sh")
GAMES, MAN, NEWS = 5, 6, 9
"""Users that Debian and Ubuntu always have, by the same numbers: of vision, of speech, of neither."""
TEAMS = (
    SlurmTeam("vision", 1, max_nodes=1, users={"root": 0, "games": GAMES}),
    SlurmTeam("speech", 1, users={"root": 0, "man": MAN}),
)
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
    accounts.run("scancel", "--quiet", "--state=PENDING")
    accounts.run("scancel", "--quiet", "--state=RUNNING")
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
        accounting=True, teams=TEAMS, user="root",
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
        prepare_head(cluster)
        begin_accounting(cluster)
        tell(cluster, made)
        for name in _NAMES:
            cluster.begin(f"slurmd-{name}", "slurmd", "-D", "-N", name)
        cluster.until(("sinfo", "--noheader", "--format=%T %D"), f"idle {len(_NAMES)}")
        yield cluster
    finally:
        end_all(cluster)


def begin_accounting(cluster: SlurmCluster) -> None:
    """slurmdbd, then the controller."""
    cluster.begin("slurmdbd", "slurmdbd", "-D")
    cluster.until(("sacctmgr", "--noheader", "list", "qos", "format=name"), "normal")
    cluster.begin_controller()
    cluster.until(("scontrol", "ping"), "UP")
    cluster.until(("sacctmgr", "--noheader", "list", "cluster", "format=cluster"), "lab")


def write(made: SlurmSpec, folder: Path) -> None:
    folder.chmod(0o755)  # other users read slurm.conf, and reach munge
    for each in ("state", "spool", "bin"):
        (folder / each).mkdir()
    for name in (*(f"aws/{each}" for each in _SCRIPTS), "aws/cloud.sh", "node/common.sh"):
        shutil.copy(TEMPLATES / name, folder / "bin")
    (folder / "node.env").write_text(
        "JOB_KEY=slurm\nLOG_GROUP=\nROLE=head\nSLURM_ACCOUNTS=yes\nSLURM_HEAD_NAME=head\nSLURM_SHARED_DIR=\n"
        "SLURM_STATE_DIR=/saved\nSLURM_ACCOUNTING_DUMP=/saved/accounting.sql.gz\n"
    )
    (folder / "etc/slurm").mkdir(parents=True)
    (folder / "etc/slurm/slurmdbd.conf").touch()
    (folder / ".my.cnf").write_text(f"[client]\nsocket={folder}/db.sock\n")
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
    """A new MariaDB, as its package starts it, which is reached by its socket alone."""
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


@pytest.mark.attack("a user of a shared Slurm", "uses more nodes than the team may")
@pytest.mark.slow
def test_a_team_never_has_more_nodes_than_its_limit_and_others_go_past_it(accounts: SlurmCluster) -> None:
    first = submit(accounts, "sleep 60", "--account=vision")
    accounts.until(state(first), "RUNNING")
    second = submit(accounts, "true", "--account=vision")
    accounts.until(state(second), "PENDING AssocGrpNodeLimit")
    other = submit(accounts, "sleep 60", "--account=speech", "--nodes=2")
    accounts.until(state(other), "RUNNING")
    accounts.run("scancel", first)
    accounts.until(state(second), "COMPLETED")


@pytest.mark.slow
@pytest.mark.attack("a user of a shared Slurm", "uses more nodes than the team may")
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


@pytest.mark.slow
def test_a_high_job_requeues_a_normal_one_and_never_the_other_way_round(accounts: SlurmCluster) -> None:
    normal = submit(accounts, "sleep 60", "--account=speech", "--nodes=3")
    accounts.until(state(normal), "RUNNING")
    low = submit(accounts, "true", "--account=speech", "--qos=low")
    high = submit(accounts, "touch high; sleep 2", "--account=vision", "--qos=high")
    accounts.until(state(high), "COMPLETED")
    assert (accounts.folder / "high").exists()
    assert "PENDING" in accounts.run(*state(low)) or "COMPLETED" in accounts.run(*state(low))
    assert "Requeue=1 Restarts=1" in accounts.run("scontrol", "show", "job", normal)


@pytest.mark.slow
def test_who_has_used_how_much_is_kept_by_team(accounts: SlurmCluster) -> None:
    number = submit(accounts, "sleep 1", "--account=speech")
    accounts.until(state(number), "COMPLETED")
    words = ("sacct", "--noheader", "--allocations", "--parsable2", f"--jobs={number}", "--format=account,state,nnodes")
    accounts.until(words, "speech|COMPLETED|1")


@pytest.mark.slow
def test_told_again_nothing_changes_and_a_limit_that_is_gone_is_taken_away(accounts: SlurmCluster) -> None:
    made = spec(accounts.folder)
    listed = ("sacctmgr", "--noheader", "--parsable2", "list", "assoc", "account=vision", "user=")
    shown = (*listed, "format=account,grptres")
    assert "vision|node=1" in accounts.run(*shown)
    free = replace(made, teams=(replace(TEAMS[0], max_nodes=None), TEAMS[1]))
    try:
        tell(accounts, free)
        assert "vision|\n" in accounts.run(*shown)
    finally:
        tell(accounts, made)
    assert "vision|node=1" in accounts.run(*shown)


def as_user(cluster: SlurmCluster, uid: int, *words: str) -> subprocess.CompletedProcess[str]:
    """What another user of the head does."""
    user = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
    return subprocess.run((*user, *words), env=cluster.env, cwd="/tmp", capture_output=True, text=True, timeout=60)


def submit_as(cluster: SlurmCluster, uid: int, *words: str) -> subprocess.CompletedProcess[str]:
    return as_user(cluster, uid, "sbatch", "--parsable", "--output=/dev/null", *words, "--wrap=sleep 60")


@pytest.mark.attack("a user of a shared Slurm", "wants another team's quota")
@pytest.mark.parametrize(
    ("user", "words"),
    [
        (GAMES, ["--account=speech"]), (MAN, ["--account=vision"]), (NEWS, []), (NEWS, ["--account=vision"]),
        (GAMES, ["--account=root"]), (GAMES, ["--account=speech", "--uid=6"]),
    ],
)  # fmt: skip
def test_nobody_submits_to_an_account_of_another_team(accounts: SlurmCluster, user: int, words: list[str]) -> None:
    done = submit_as(accounts, user, *words)
    assert done.returncode != 0
    assert "nvalid account" in done.stderr or "only permitted by root" in done.stderr, done.stderr
    assert accounts.run("squeue", "--noheader") == ""


@pytest.mark.attack("a user of a shared Slurm", "wants another team's quota")
def test_a_job_is_its_users_in_the_account_of_the_users_team_and_stays_there(accounts: SlurmCluster) -> None:
    number = submit_as(accounts, GAMES, "--hold").stdout.strip()
    owner = ("squeue", "--noheader", f"--jobs={number}", "--format=%u %a %T")
    assert accounts.run(*owner) == "games vision PENDING\n"
    assert as_user(accounts, GAMES, "scontrol", "update", f"job={number}", "account=speech").returncode != 0
    assert as_user(accounts, GAMES, "sacctmgr", "-i", "add", "user", "games", "account=speech").returncode != 0
    assert as_user(
        accounts, GAMES, "sacctmgr", "-i", "modify", "account", "vision", "set", "grptres=node=-1"
    ).returncode
    assert accounts.run(*owner) == "games vision PENDING\n"


@pytest.mark.attack("a user of a shared Slurm", "wants another user's job")
def test_nobody_ends_holds_changes_or_reads_another_users_job(accounts: SlurmCluster) -> None:
    number = submit_as(accounts, GAMES).stdout.strip()
    accounts.until(state(number), "RUNNING")
    for user in (MAN, NEWS):
        for words in (
            ("scancel", number),
            ("scancel", "--signal=KILL", "--batch", number),
            ("scontrol", "requeue", number),
            ("scontrol", "suspend", number),
            ("scontrol", "update", f"job={number}", "timelimit=1"),
            ("srun", f"--jobid={number}", "--overlap", "id"),
        ):
            assert as_user(accounts, user, *words).returncode != 0, words
        assert "sleep" not in as_user(accounts, user, "scontrol", "write", "batch_script", number, "-").stdout
    assert accounts.run(*state(number)).startswith("RUNNING")
    assert as_user(accounts, GAMES, "scancel", number).returncode == 0


@pytest.mark.slow
@pytest.mark.attack("a user of a shared Slurm", "wants another team's quota")
def test_who_leaves_a_team_submits_to_it_no_more(accounts: SlurmCluster) -> None:
    made = spec(accounts.folder)
    vision, speech = TEAMS
    moved = (replace(vision, users={"root": 0}), replace(speech, users={**speech.users, "games": GAMES}))
    try:
        tell(accounts, replace(made, teams=moved))
        assert submit_as(accounts, GAMES, "--account=vision").returncode != 0
        number = submit_as(accounts, GAMES, "--hold").stdout.strip()
        assert accounts.run("squeue", "--noheader", f"--jobs={number}", "--format=%a").strip() == "speech"
        accounts.run("scancel", number)
    finally:
        tell(accounts, made)
    assert submit_as(accounts, GAMES, "--account=speech").returncode != 0


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mysqldump") is None, reason="mysqldump not installed (Debian: mariadb-client)")
def test_a_new_head_knows_the_hours_and_accounts_that_the_last_one_saved(accounts: SlurmCluster) -> None:
    number = submit(accounts, "true", "--account=vision")
    accounts.until(state(number), "COMPLETED")
    make_hour_long(accounts, number)
    before = known(accounts)
    assert "lab|vision|root|root|1|0\n" in before[0]
    assert "777|root|vision|01:00:00|COMPLETED\n" in before[1]
    dump = accounts.folder / "saved/accounting.sql.gz"
    accounts.end_controller()
    try:
        end(accounts, "slurmdbd")
        done = on_head(accounts, "setpriv", "--reuid=slurm", "--regid=slurm", "--clear-groups",
                       "bash", "bin/slurm-save.sh", str(dump))  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert (dump.owner(), dump.stat().st_mode & 0o777) == ("slurm", 0o600)
        saved = dump.read_bytes()
        end(accounts, "mariadbd")
        shutil.rmtree(accounts.folder / "db")
        begin_database(accounts)
        # One that is damaged leaves nothing but an empty database, and is kept.
        dump.write_bytes(saved[: len(saved) // 2])
        assert "accounting starts empty" in prepare_head(accounts)
        assert sql(accounts, "SHOW TABLES") == ""
        assert [path.name.partition("-")[0] for path in dump.parent.glob("acc*.unusable-*")] == [
            f"{dump.name}.unusable"
        ]
        dump.write_bytes(saved)
        assert "accounting restored" in prepare_head(accounts)
        assert prepare_head(accounts) == ""
    finally:
        if "mariadbd" not in accounts.processes:
            begin_database(accounts)
        begin_accounting(accounts)
    tell(accounts, spec(accounts.folder))
    assert known(accounts) == before
    # A job of the last head's last minutes, which slurmctld may still know, never shares its number with a new one.
    last = submit(accounts, "true", "--account=speech")
    accounts.until(state(last), "COMPLETED")
    assert int(sql(accounts, f"SELECT job_db_inx FROM lab_job_table WHERE id_job = {last}")) > 1_000_000


def make_hour_long(cluster: SlurmCluster, number: str) -> None:
    """Turns a job that ended into one of a full hour, because Slurm sums up full hours only. Its number becomes 777:
    slurmctld corrects the times of jobs that it knows.
    """
    # slurmctld reports a job's end to the database a little later.
    recorded = ("sacct", "--noheader", "--allusers", "--allocations", f"--jobs={number}", "--format=state")
    cluster.until(recorded, "COMPLETED")
    hour = "UNIX_TIMESTAMP() DIV 3600 * 3600"
    sql(
        cluster,
        f"UPDATE lab_job_table SET id_job = 777, time_submit = {hour} - 7200, time_eligible = {hour} - 7200, "
        f"time_start = {hour} - 7200, time_end = {hour} - 3600 WHERE id_job = {number};"
        f"UPDATE lab_event_table SET time_start = {hour} - 86400 WHERE node_name = '';"
        f"UPDATE lab_last_ran_table SET hourly_rollup = {hour} - 10800, daily_rollup = {hour} - 10800",
    )
    cluster.run("sacctmgr", "--immediate", "rollup")


def known(cluster: SlurmCluster) -> list[str]:
    """What Slurm's own commands tell: hours, jobs, accounts."""
    plain = ("--noheader", "--parsable2")
    period = ("start=now-1days", "end=now")
    return [
        cluster.run("sreport", *plain, "-t", "hours", "cluster", "AccountUtilizationByUser", *period),
        cluster.run("sacct", *plain, "--allusers", "--jobs=777", "--format=jobid,user,account,elapsed,state"),
        cluster.run("sacctmgr", *plain, "list", "associations", "format=cluster,account,user,fairshare,grptres,qos,id"),
        cluster.run("sacctmgr", *plain, "list", "qos", "format=name,priority,preempt,flags"),
    ]


def sql(cluster: SlurmCluster, text: str) -> str:
    done = on_head(cluster, "mysql", "--batch", "--skip-column-names", f"--execute={text}", "slurm_acct_db")
    assert done.returncode == 0, done.stderr
    return done.stdout


def end(cluster: SlurmCluster, name: str) -> None:
    process = cluster.processes.pop(name)
    process.terminate()
    process.wait(60)


def prepare_head(cluster: SlurmCluster) -> str:
    """What a head does at boot before its daemons; returns what it logs."""
    for name in ("hostnamectl", "systemctl"):
        path = cluster.folder / "fake" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    done = on_head(cluster, "bash", "bin/slurm-head.sh")
    assert done.returncode == 0, done.stderr
    return done.stderr


def on_head(cluster: SlurmCluster, *words: str) -> subprocess.CompletedProcess[str]:
    folder = cluster.folder
    env = {
        **cluster.env, "GANGWAY_NODE_ENV": f"{folder}/node.env", "GANGWAY_SLURM_ACCOUNTS": f"{folder}/accounts",
        "GANGWAY_ROOT": str(folder), "HOME": str(folder), "PATH": f"{folder}/fake:{cluster.env['PATH']}",
    }  # fmt: skip
    return subprocess.run(words, env=env, cwd=folder, capture_output=True, text=True, timeout=120)


def tell(cluster: SlurmCluster, made: SlurmSpec) -> None:
    """By the head's own script."""
    lines = "".join(" ".join(words) + "\n" for words in account_words(made))
    (cluster.folder / "accounts").write_text(lines)
    done = on_head(cluster, "bash", "bin/slurm-accounts.sh")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_what_a_team_has_spent_since_a_moment_is_read_from_the_accounting(
    accounts: SlurmCluster, tmp_path: Path
) -> None:
    """Of a job that ran an hour, the half since then."""
    now = datetime.now(UTC)
    since, engine = now.replace(minute=0, second=0, microsecond=0) - timedelta(minutes=90), SlurmEngine(tmp_path)
    before = engine.accounted_hours(since, now)
    assert before is not None
    number = submit(accounts, "true", "--account=vision")
    accounts.until(state(number), "COMPLETED")
    make_hour_long(accounts, number)
    after = engine.accounted_hours(since, now)
    assert after is not None
    key = ("root", "vision")
    assert after[key] - before.get(key, 0) == pytest.approx(0.5, abs=0.02)
    spent = (engine.accounted_hours(now.replace(day=1, hour=0, minute=0, second=0), now) or {})[key]
    here = Site(engine, "lab", Nodes(10, "a list"), LimitsConfig(team_usd_per_month=10 * spent + 5))
    spending.check(here, JOB.model_copy(update={"max_hours": 0.4, "team": "vision"}), now)
    with pytest.raises(InputError, match=r"(?s)costs up to 6.*Slurm's accounting") as caught:
        spending.check(here, JOB.model_copy(update={"max_hours": 0.6, "team": "vision"}), now)
    assert caught.value.place == "engines.lab.limits.team_usd_per_month"


JOB = JobFile.model_validate({"name": "a", "command": ["true"], "max_hours": 1})
