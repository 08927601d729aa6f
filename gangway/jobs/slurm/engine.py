"""The engine `slurm`: submits jobs to an existing Slurm with its own commands, through a folder that its nodes share.
The folder records how a job ended, so this is known after Slurm has forgotten the job.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from gangway.components.core.findings import Finding, InputError, nearest_hint
from gangway.components.core.keys import new_member_key
from gangway.components.estimate.regions import Place
from gangway.images.render import TEMPLATES
from gangway.jobs.base import (
    EngineAwayError,
    JobStatus,
    Move,
    Phase,
    Room,
    SubmitUnansweredError,
    rendezvous_findings,
    resource_findings,
)
from gangway.jobs.copying import with_data
from gangway.jobs.job_folder import JobFolder, OwnJobFolder, check_open, job_ids, open_job, sharing_findings
from gangway.jobs.job_folders import (
    CANCEL_FILE,
    RUN_FOLDER,
    FolderEngine,
    get_environment,
    read_job,
    read_status,
    without_marks,
    working_folder_findings,
    write_status,
)
from gangway.jobs.node_command import TRAIN_FILE, needs_member_key, train_document
from gangway.jobs.run_intervals import boot_stamp, get_run_intervals
from gangway.jobs.slurm import script
from gangway.stacks.config.job_file import JobFile

_TIMEOUT_SEC = 60.0
_WORDS, _SUBMITTED, _GONE = "sbatch.words", ".submitted", ".gone"
_WAITS = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "REQUEUE_FED")
_RUNS = ("RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "STAGE_OUT")
_NO_SCRIPT = (*_WAITS, "CONFIGURING")
"""States without a running batch script, including nodes that are still being prepared."""
_AWAY = re.compile(
    r"[Uu]nable to contact slurm controller|[Cc]onnection refused|[Ss]ocket timed out|not responding|"
    r"Zero Bytes were transmitted"
)
_NOT_SENT = re.compile(r"[Cc]onnect failure|[Cc]onnection refused")
"""Errors after which Slurm has certainly not taken the job."""
_LOOKED_SEC, _LOOK_SEC = 20.0, 2.0
"""For a job whose submit got no answer: how long to look for it, and how often."""
_SIGNALS, _SIGNAL_SEC = 5, 0.5
"""How often to signal a job, and the pause between."""
_BEING_CANCELLED = "being cancelled: it was asked to stop, and is killed after its grace period"
_SUBMITTED_SEC, _SEEN_SEC = 6 * _TIMEOUT_SEC, 90.0
"""After which a submit without a number was cut off: more than its calls may take. After which a shared folder shows
what a node has written.
"""
_NO_NODES = (
    "use another partition: --on slurm:FOLDER@PARTITION; or set PrivateData=cloud in slurm.conf, else Slurm hides "
    "nodes that are powered down"
)
_IS_OVER = re.compile(r"Invalid job id|already complet")
_LOST_ENDS = {"CANCELLED": Phase.CANCELLED, "TIMEOUT": Phase.OVER_HOURS, "DEADLINE": Phase.OVER_HOURS}


@dataclass(frozen=True)
class _State:
    uid: str
    word: str
    reason: str
    comment: str


_OR = "+"
"""Separates partitions; a comma separates engines."""
_STATE_FORMAT = "%i|%U|%T|%r|%k"


@dataclass(frozen=True)
class _Partition:
    """Partitions as in Slurm's options; `nodes`: the most for one job, `most_minutes`: None if unlimited."""

    name: str
    nodes: int
    most_minutes: int | None


class SlurmEngine(FolderEngine):
    """`folder`: shared with all nodes; `partition`: empty for the default, or several joined by +."""

    kind = "slurm"

    def __init__(self, folder: Path, partition: str = "", region: Place | None = None) -> None:
        super().__init__(folder, region)
        self._asked = partition
        self.where = f"{folder}{f'@{partition}' if partition else ''}"
        if partition and "" in partition.split(_OR):
            named = _OR.join(filter(None, partition.split(_OR)))
            raise InputError(
                "--on slurm", "a partition's name is empty", value=partition, allowed=f"names joined by {_OR}",
                fix=f"--on slurm:{folder}{named and f'@{named}'}",
            )  # fmt: skip

    def findings(self, job: JobFile) -> Iterable[Finding]:
        """See `Engine`. InputError: Slurm does not answer, or has no such partition."""
        yield from sharing_findings(self._folder)
        yield from working_folder_findings(job, is_here=False)
        # Slurm drops backslashes from a log's path, and prints comments on one line.
        if odd := [character for character in str(self._folder) if character == "\\" or not character.isprintable()]:
            yield Finding.error(
                "job.folder",
                f"--on slurm:{self.where}",
                f"the folder's name contains {odd[0]!r}, which breaks jobs in Slurm; allowed are "
                "printable characters except the backslash",
                "use another: --on slurm:/shared/jobs",
            )
        partition = self._partition()
        if job.nodes.min > (nodes := partition.nodes):
            yield Finding.error(
                "job.nodes",
                "nodes.min",
                f"{job.nodes.min} nodes, but the partition has {nodes}",
                f"nodes: {{min: {nodes}, max: {nodes}}}" if nodes else _NO_NODES,
            )
        # Slurm accepts such a job and lets it wait forever.
        if partition.most_minutes is not None and (asked := script.get_minutes(job)) > partition.most_minutes:
            hours = script.get_max_hours(job, partition.most_minutes)
            yield Finding.error(
                "job.max_hours",
                "max_hours",
                f"{job.max_hours:g} h are {asked} minutes with the grace period and margin, but {partition.name} "
                f"ends jobs after {partition.most_minutes}",
                f"max_hours: {hours:g}" if hours > 0 else "use another partition: --on slurm:FOLDER@PARTITION",
            )
        yield from script.image_findings(job, self._folder)
        yield from resource_findings(job)
        yield from rendezvous_findings(job, "anyone on the cluster's network, such as other users' jobs")
        if job.team and not self.has_accounts():
            yield Finding.warning(
                "job.team", "team", "ignored: this Slurm has no accounts", "leave it out, or add slurmdbd"
            )

    def status(self, job_id: str) -> JobStatus:
        """See `Engine`."""
        return self._read_any(self._open_job(job_id))

    def _read_any(self, folder: JobFolder) -> JobStatus:
        return self._status(folder, _one_state)

    def jobs(self) -> Sequence[JobStatus]:
        """See `Engine`. Asks Slurm once for all jobs. InputError: there is no such folder, or it is closed."""
        check_open(self._folder)
        if not self._folder.is_dir():
            raise InputError(
                "--on slurm", "there is no such folder on this machine", value=str(self._folder),
                allowed="a folder of jobs, made by the first submit", fix="correct the name, or mount it here",
            )  # fmt: skip

        @cache  # only called if a job is not over
        def listed() -> Mapping[str, _State]:
            numbers = ",".join(self._numbers())
            return _states(f"--jobs={numbers}") if numbers else {}

        def state(slurm_id: str) -> _State:
            return listed().get(slurm_id) or _one_state(slurm_id)

        return self._list(lambda folder: self._status(folder, state))

    def _numbers(self) -> Iterator[str]:
        for job_id in job_ids(self._folder):
            with suppress(InputError, OSError):
                folder = open_job(self._folder / job_id)
                if not read_status(folder).phase.is_over and (number := script.read_id(folder)):
                    yield number

    def _status(self, folder: JobFolder, state_of: Callable[[str], _State]) -> JobStatus:
        known = read_status(folder)
        if known.phase.is_over:
            return known
        found = self._current_status(folder, known, state_of)
        if found.phase.is_over and (own := script.open_own_folder(folder)) is not None:
            with suppress(InputError):  # without space it is determined again next time
                write_status(own, found)
        return found

    def _failures(self, folder: JobFolder) -> int:
        return script.read_number(folder, "failures") or 0

    def _interruptions(self, folder: JobFolder) -> int:
        return script.read_number(folder, "interruptions") or 0

    def stop(self, job_id: str) -> None:
        """See `FolderEngine`. InputError, EngineAwayError: Slurm was not signalled; the job will not start again."""
        folder = self._open_job(job_id)
        if self.status(job_id).phase.is_over:
            return
        with _writing(folder.path):
            folder.touch(CANCEL_FILE)
        # After writing the file: a batch script that starts later finds it.
        if not (slurm_id := _find_id(folder)):
            with suppress(InputError):  # without space, the file alone records it
                write_status(folder, replace(read_status(folder), phase=Phase.CANCELLED, reason="cancelled"))
            return
        _cancel_in_slurm(folder, slurm_id)

    def room(self, job: JobFile) -> Room:
        """See `Engine`."""
        partition = self._partition().name
        of_it = ("--noheader", f"--partition={partition}")
        waiting = len(_slurm("squeue", *of_it, "--states=PENDING", "--format=%i").split())
        lines = _slurm("sinfo", *of_it, "--states=idle", "--format=%R|%D").split()
        idle = _largest_total(line.split("|") for line in lines)
        return Room(not waiting and idle >= job.nodes.min, f"{idle} nodes idle in {partition}, {waiting} jobs waiting")

    def _has_started(self, folder: OwnJobFolder) -> bool:
        return True  # Slurm, or a running submit; an interrupted one shows as failed

    def _may_have_started(self, folder: OwnJobFolder) -> bool:
        """Checks for the last file that is written before sbatch runs."""
        return folder.has(_WORDS)

    def _store(
        self, job: JobFile, new: OwnJobFolder, moves: tuple[Move, ...], environment: Mapping[str, str]
    ) -> OwnJobFolder:
        return super()._store(job, new, moves, script.without_allocation(environment))

    def _begin(self, job_id: str) -> None:
        folder = self._open_job(job_id)
        path, partition = folder.path, self._partition().name
        job = read_job(folder)
        words = script.sbatch_args(job, path, partition, has_accounts=self.has_accounts())
        with _writing(path):
            folder.remove(_WORDS)  # of an earlier, refused submit
            for name in (script.BATCH_SCRIPT, script.NODE_SCRIPT, script.OWN_JOB):
                folder.write(name, (TEMPLATES / "job" / name).read_bytes())
            if job.image is not None:
                for name in (script.HOME_FOLDER, *script.output_folders(job, RUN_FOLDER).values()):
                    folder.make_folders(name)
            folder.write(
                "batch.env", script.batch_env(job, job_id, partition, read_status(folder).earlier_usage).encode()
            )
            folder.write("node.env", script.node_env(with_data(job, self._folder), path, sys.executable).encode())
            if (document := train_document(job, script.get_place(job, path, sys.executable))) is not None:
                folder.write(TRAIN_FILE, document.encode())
            if needs_member_key(job):
                parent, _, name = script.MEMBER_KEY.partition("/")
                folder.subfolder(parent).write(name, new_member_key(folder.name).encode(), 0o600)
            folder.write(_SUBMITTED, f"{boot_stamp()}\n".encode())
            folder.write(_WORDS, "".join(f"{word}\n" for word in words).encode())
        script.save_id(folder, _sbatch(folder, words))

    def _current_status(self, folder: JobFolder, known: JobStatus, state_of: Callable[[str], _State]) -> JobStatus:
        slurm_id = _find_id(folder)
        if not slurm_id:
            return _submit_status(folder, known)
        state, reason = _own_state(folder, state_of(slurm_id))
        # Read after asking Slurm: a job that had ended by then has left its files.
        end, started = script.find_end(folder), script.read_number(folder, "started")
        seen = replace(
            known,
            starts=script.read_number(folder, "starts") or 0,
            nodes=tuple(script.read_line(folder, "nodes").split()),
            started_at=None if started is None else script.parse_ms(folder.path / "started", started),
            stretches=get_run_intervals(folder, runs=state in _RUNS),
        )
        if end is not None:
            return replace(seen, phase=end.phase, exit_code=end.code, reason=end.why, ended_at=end.at)
        if script.read_id(folder) not in ("", slurm_id):  # a script has just taken over
            return self._current_status(folder, known, _one_state)
        if folder.is_own and state in _NO_SCRIPT and folder.has(CANCEL_FILE):
            # Signalled while it ran, but requeued since: it would start again. Others may not cancel it.
            with suppress(InputError):
                _cancel_in_slurm(folder, slurm_id, tries=1)
        if state in _WAITS:
            return replace(seen, phase=Phase.WAITING, reason="being cancelled" if folder.has(CANCEL_FILE) else reason)
        if state in _RUNS:
            return replace(seen, phase=Phase.RUNNING, reason=_BEING_CANCELLED if folder.has(CANCEL_FILE) else "")
        # Its script's result may take a while to appear in a shared folder.
        if script.sec_since_mark(folder, _GONE) < _SEEN_SEC and state != "CANCELLED" and not folder.has(CANCEL_FILE):
            return replace(seen, phase=Phase.RUNNING, reason=f"Slurm reports {state}; waiting for its script's result")
        is_cancelled = folder.has(CANCEL_FILE) or state == "CANCELLED"
        phase = Phase.CANCELLED if is_cancelled else _LOST_ENDS.get(state, Phase.FAILED)
        unknown = "Slurm no longer knows it" if state == "UNKNOWN" else f"Slurm reports {state}"
        look = f"check scontrol show job {slurm_id}, and the free space in {folder.path}"
        why = "cancelled" if is_cancelled else f"{unknown}, and its script left no result: {look}"
        return replace(seen, phase=phase, reason=why, ended_at=datetime.now(UTC))

    def _partition(self) -> _Partition:
        rows = [line.split("|") for line in _slurm("sinfo", "--noheader", "--format=%P|%D|%l").split()]
        names = list(dict.fromkeys(name.rstrip("*") for name, *_ in rows))
        default = next((name.rstrip("*") for name, *_ in rows if name.endswith("*")), "")
        wanted = (self._asked or default).split(_OR)
        for one in wanted:
            if one not in names:
                raise InputError(
                    f"--on slurm:{self.where}", f"Slurm has no {'such' if one else 'default'} partition",
                    value=one, allowed=", ".join(names), fix=nearest_hint(one, names),
                )  # fmt: skip
        own = [(name.rstrip("*"), number, limit) for name, number, limit in rows if name.rstrip("*") in wanted]
        limits = [script.parse_minutes(limit) for *_, limit in own]
        most = None if None in limits else max(limit for limit in limits if limit is not None)
        return _Partition(",".join(wanted), _largest_total((name, number) for name, number, _ in own), most)

    def accounted_hours(self, since: datetime, now: datetime) -> Mapping[tuple[str, str], float] | None:
        """Node-hours of all jobs since then by user and account; None without an accounting database."""
        if not self.has_accounts():
            return None
        words = ("--noheader", "--parsable2", "--allusers", "--allocations", "--duplicates", "--truncate")
        begin, end = (f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}" for at in (since, now))
        span = (f"--starttime={begin}", f"--endtime={end}")
        variables = {**os.environ, "LC_ALL": "C.UTF-8", "TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
        text = _slurm("sacct", *words, *span, "--format=User,Account,AllocNodes,ElapsedRaw", variables=variables)
        return script.sum_node_hours(text)

    def has_accounts(self) -> bool:
        """Whether this Slurm has an accounting database."""
        lines = _slurm("scontrol", "show", "config").splitlines()
        found = [line.partition("=")[2].strip() for line in lines if line.startswith("AccountingStorageType")]
        return bool(found) and found[0] not in ("accounting_storage/none", "(null)", "")


def _largest_total(counts: Iterable[Sequence[str]]) -> int:
    found: dict[str, int] = {}
    for name, number in counts:
        found[name] = found.get(name, 0) + int(number)
    return max(found.values(), default=0)


def _one_state(slurm_id: str) -> _State:
    return _states(f"--jobs={slurm_id}").get(slurm_id, _State("", "", "", ""))


def _cancel_in_slurm(folder: JobFolder, slurm_id: str, tries: int = _SIGNALS) -> None:
    """Ends no other job: a killed controller may reuse a number, but then user or comment differ."""
    state, _ = _own_state(folder, _one_state(slurm_id))
    if state == "UNKNOWN":
        return
    # The batch script signals the step and waits; without a script the job ends at once.
    signal = ["--batch", "--signal=TERM"] if state in _RUNS and state not in _NO_SCRIPT else []
    for left in reversed(range(tries)):
        try:
            _slurm("scancel", *signal, slurm_id)  # --quiet would hide which failure it is
            return
        except InputError as error:
            if _IS_OVER.search(error.problem):
                return
            # Just after its start a script cannot be signalled yet, and scancel fails without a message.
            if error.problem != "scancel: " or not left:
                raise
        time.sleep(_SIGNAL_SEC)


def _users(folder: JobFolder) -> tuple[str, str]:
    """Who may have submitted it: a shared folder may map root to nobody."""
    return str(folder.uid), str(os.geteuid())


def _states(which: str) -> dict[str, _State]:
    """By number. Never of all users' jobs: a stranger's comment may contain a line that looks like another job's."""
    try:
        output = _slurm("squeue", "--noheader", "--states=all", which, f"--format={_STATE_FORMAT}")
    except InputError as error:
        if "Invalid job id" not in error.problem:
            raise
        output = ""
    rows = (line.split("|", 4) for line in output.splitlines())
    return {row[0]: _State(*row[1:]) for row in rows if len(row) == 5}


def _own_state(folder: JobFolder, found: _State) -> tuple[str, str]:
    """UNKNOWN if Slurm does not know the folder's job: numbers are reused, and any user may set any comment."""
    if found.comment != script.get_comment(folder.path) or found.uid not in _users(folder):
        return "UNKNOWN", ""
    return found.word, "" if found.reason == "None" else found.reason


def _find_id(folder: JobFolder) -> str:
    """The folder's job id in Slurm; empty if Slurm has not taken it. An interrupted submit did not save it."""
    if kept := script.read_id(folder):
        return kept
    of_owner = _states(f"--user={','.join(_users(folder))}")
    own = [number for number, state in of_owner.items() if state.comment == script.get_comment(folder.path)]
    if own and (mine := script.open_own_folder(folder)) is not None:
        script.save_id(mine, max(own, key=int))
    return script.read_id(folder) or max(own, key=int, default="")


def _sbatch(folder: OwnJobFolder, words: Sequence[str]) -> str:
    """Submits and returns Slurm's job id. SubmitUnansweredError: Slurm may or may not have taken it."""
    try:
        output = _slurm("sbatch", "--parsable", *words, variables=_sbatch_environment(get_environment(folder)))
        return output.partition(";")[0].strip()
    except EngineAwayError as error:
        if _NOT_SENT.search(error.problem):
            raise
        until = time.monotonic() + _LOOKED_SEC
        while time.monotonic() < until:
            time.sleep(_LOOK_SEC)
            with suppress(InputError):
                if number := _find_id(folder):
                    return number
        raise SubmitUnansweredError(
            error.place, f"{error.problem}; the job may still have been submitted, as {folder.name}",
            allowed="one job", fix=f"check {folder.name} before you submit it again",
        ) from None  # fmt: skip


def _sbatch_environment(of_submit: Mapping[str, str]) -> dict[str, str]:
    """The submit's, with this process's way to Slurm; sbatch's folder is last on PATH, after the job's programs."""
    own = {name: os.environ[name] for name in script.REACH if name in os.environ}
    commands = shutil.which("sbatch")
    path = os.pathsep.join([of_submit.get("PATH", os.defpath), *([str(Path(commands).parent)] if commands else [])])
    return {**{name: value for name, value in of_submit.items() if name not in script.REACH}, "PATH": path, **own}


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(str(folder), f"cannot be written: {error.strerror}", fix="free some space there") from None


def _submit_status(folder: JobFolder, known: JobStatus) -> JobStatus:
    if folder.has(CANCEL_FILE):
        return replace(known, phase=Phase.CANCELLED, reason="cancelled")
    if script.sec_since_mark(folder, _SUBMITTED) < _SUBMITTED_SEC:
        return replace(known, reason="being submitted")
    if (own := script.open_own_folder(folder)) is not None:
        with suppress(OSError):
            own.touch(CANCEL_FILE)  # has no effect if it was submitted after all
    return replace(known, phase=Phase.FAILED, reason="its submit was interrupted: submit it again")


def _slurm(program: str, *words: str, variables: Mapping[str, str] | None = None) -> str:
    """Output of a Slurm command. InputError: it is missing, it refuses, or its controller does not answer."""
    try:
        done = subprocess.run(
            [shutil.which(program) or program, *words],  # found on this process's PATH, not on that of `variables`
            capture_output=True,
            encoding="utf-8",
            errors="replace",  # other users choose names and comments
            timeout=_TIMEOUT_SEC,
            # Slurm passes variables on: with its mark, the end of a submitting local job would end the other.
            env={**without_marks(os.environ), "LC_ALL": "C.UTF-8"} if variables is None else without_marks(variables),
        )
    except FileNotFoundError:
        raise InputError(
            "--on slurm",
            f"{program} is not on PATH",
            fix="run it where Slurm's commands are installed, such as the login node",
        ) from None
    except subprocess.TimeoutExpired:
        raise EngineAwayError(
            "--on slurm",
            f"{program}: no answer within {_TIMEOUT_SEC:g} s",
            fix="check whether slurmctld is up: scontrol ping",
        ) from None
    if done.returncode:
        output = done.stderr.strip() or done.stdout.strip()
        kind = EngineAwayError if _AWAY.search(output) else InputError
        raise kind("--on slurm", f"{program}: {output}", fix="check whether the controller answers: scontrol ping")
    return done.stdout
