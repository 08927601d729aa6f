"""Translates a job file for Slurm: sbatch's arguments, and the two files of variables for its scripts; pure except for
a look at PATH. Each node runs a job's image with Apptainer, which needs neither a daemon nor root.
"""

import math
import re
import secrets
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gangway.components.core.findings import Finding
from gangway.jobs.base import Phase, Usage, lost_output_findings, restart_limit, restart_limit_reason
from gangway.jobs.job_folder import JobFolder, NotOwnError, OwnJobFolder, UnreadableError
from gangway.jobs.job_folders import LOG_FILE, RUN_FOLDER
from gangway.jobs.node_command import TRAIN_FILE, Meeting, Place, node_argv, node_variables
from gangway.jobs.run_intervals import boot_stamp, sec_since
from gangway.stacks.config.job_file import JobFile, Priority
from gangway.stacks.config.own_command import outputs_in_mounts
from gangway.stacks.config.paths import ROOT

BATCH_SCRIPT, NODE_SCRIPT, OWN_JOB = "slurm-batch.sh", "slurm-node.sh", "own-job.sh"
MEMBER_KEY = "member/key.pem"
"""In a job's folder; its own folder is closed to others."""
NICE = {Priority.HIGH: 0, Priority.NORMAL: 1000, Priority.LOW: 100_000}
"""Users can only lower their priority. Jobs submitted without --nice run before normal ones."""
_MARGIN_MINUTES = 10
"""By which Slurm's limit exceeds the job's hours, which the batch script enforces over all starts."""
REACH = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_CLUSTERS")
"""For reaching and authenticating with Slurm; always the caller's."""
OF_ALLOCATION = (
    "(SLURMD?_.*|SBATCH_MEM_BIND.*|CUDA_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|ZE_AFFINITY_MASK)"
)
"""Besides `REACH`, what salloc, sbatch and srun set, as a pattern for Python and grep. SBATCH_ variables are the user's
or the site's.
"""
APPTAINER = "apptainer"
HOME_FOLDER = "home"
"""The command's home, in the job's folder: the user's own may hold Python packages that do not fit the image."""
_SEPARATORS = ":,"
"""Separators inside and between Apptainer's mounts."""
_PREFIX = "APPTAINERENV_"
"""Variables with this prefix reach the container without it; `--cleanenv` keeps others out."""


def without_allocation(variables: Mapping[str, str]) -> dict[str, str]:
    """Removes those of the allocation that the submit ran in: the job's steps would use them."""
    if "SLURM_JOB_ID" not in variables:
        return dict(variables)
    return {name: value for name, value in variables.items() if name in REACH or not re.fullmatch(OF_ALLOCATION, name)}


def sbatch_args(job: JobFile, folder: Path, partition: str, *, has_accounts: bool) -> list[str]:
    """Arguments for the job in its folder."""
    return [
        f"--job-name={job.name}",
        f"--partition={partition}",
        f"--nodes={job.nodes.min}-{job.nodes.max}",
        "--ntasks-per-node=1",
        "--exclusive",
        "--mem=0",  # all of the nodes' memory, which --exclusive does not bring
        f"--time={get_minutes(job)}",
        f"--nice={NICE[job.priority]}",
        "--requeue",
        "--propagate=NONE",  # the nodes' resource limits instead of the submitter's
        "--open-mode=append",
        f"--output={str(folder / LOG_FILE).replace('%', '%%')}",  # a pattern, in which %j is the job's number
        f"--chdir={folder / RUN_FOLDER}",
        f"--comment={get_comment(folder)}",
        *([f"--account={job.team}"] if job.team and has_accounts else []),
        str(folder / BATCH_SCRIPT),
        str(folder),
    ]


def get_minutes(job: JobFile) -> int:
    """The time limit to ask Slurm for."""
    return math.ceil((round(job.max_hours * 3600) + job.grace_sec) / 60) + _MARGIN_MINUTES


def get_max_hours(job: JobFile, minutes: int) -> float:
    """The largest max_hours, to two digits, for which `get_minutes` fits; negative if there is none."""
    return ((minutes - _MARGIN_MINUTES) * 60 - job.grace_sec) // 36 / 100


def parse_minutes(limit: str) -> int | None:
    """Whole minutes of Slurm's `1-02:30:00` or `30:00`; None for `infinite`."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", limit)
    if match is None:
        return None
    days, hours, minutes, _ = (int(part or 0) for part in match.groups())
    return (days * 24 + hours) * 60 + minutes


def sum_node_hours(text: str) -> dict[tuple[str, str], float]:
    """Node-hours by user and account, of sacct's lines.

    >>> sum_node_hours("ann|vision|2|3600\nann|vision|1|1800\n")
    {('ann', 'vision'): 2.5}
    """
    hours = dict[tuple[str, str], float]()
    for line in text.splitlines():
        user, account, nodes, seconds = line.split("|")
        hours[user, account] = hours.get((user, account), 0.0) + int(nodes or 0) * int(seconds or 0) / 3600
    return hours


def get_comment(folder: Path) -> str:
    """Identifies the folder's job."""
    return f"gangway:{folder}"


def batch_env(job: JobFile, job_id: str, partition: str, before: Usage) -> str:
    """For the batch script. `before`: usage on earlier engines."""
    values = {
        "JOB": job_id,
        "PARTITION": partition,
        "MIN_NODES": job.nodes.min,
        "MAX_MS": round(job.max_hours * 3_600_000),
        "MAX_RESTARTS": job.max_restarts,
        "MOST_RESTARTS": restart_limit(job),
        "TOO_OFTEN": restart_limit_reason(job),
        "GRACE_SEC": job.grace_sec,
        "OF_ALLOCATION": OF_ALLOCATION,
        "REACH": "|".join(REACH),
        "BEFORE_MS": round(before.sec * 1000),
        "BEFORE_FAILURES": before.failures,
        "BEFORE_INTERRUPTIONS": before.interruptions,
    }
    return "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in values.items())


def get_place(job: JobFile, folder: Path, python: str) -> Place:
    """What the job's folder has for a node."""
    return Place(
        run_dir=str(folder / RUN_FOLDER),
        train_file=str(folder / TRAIN_FILE),
        own_job=str(folder / OWN_JOB),
        python=python if job.image is None else "python",
    )


def node_env(job: JobFile, folder: Path, python: str) -> str:
    """For the node script: variables, folder and command; addresses and devices are known only on the node."""
    place, run_dir = get_place(job, folder, python), str(folder / RUN_FOLDER)
    # Placeholders for values known only on the node; random, so that no job can contain them.
    (host, meeting_id, rank), (port, nodes) = (
        (secrets.token_hex(16) for _ in range(3)),
        (secrets.randbits(96), secrets.randbits(96)),
    )
    key = str(folder / MEMBER_KEY)
    meeting = Meeting(host, port, meeting_id, nodes, key, rank) if job.nodes.max > 1 else None
    at_run_time = {
        host: "${GANGWAY_HOST}",
        str(port): "${GANGWAY_PORT}",
        meeting_id: "${SLURM_JOB_ID}",
        str(nodes): "${SLURM_NNODES}",
        rank: "${SLURM_NODEID}",
    }
    variables = node_variables(job, place, str(folder / "notices.jsonl"))
    words = " ".join(_word(each, at_run_time) for each in node_argv(job, place, meeting))
    begin, workdir = f'export PATH="$PATH":{shlex.quote(str(Path(python).parent))}\n', job.workdir or run_dir
    if job.preset is not None:  # the nodes' Python path lacks an installed Gangway
        begin += f'export PYTHONPATH={shlex.quote(str(ROOT))}"${{PYTHONPATH:+:$PYTHONPATH}}"\n'
    if job.image is not None:
        begin, workdir, variables = "", run_dir, {f"{_PREFIX}{name}": value for name, value in variables.items()}
        words = f'{APPTAINER} exec "${{GANGWAY_DEVICES[@]}}" {shlex.join(exec_args(job, folder, run_dir))} {words}'
    return "".join(
        [
            begin,  # finds torchrun if there is no other
            *(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()),
            f"GANGWAY_WORKDIR={shlex.quote(workdir)}\n",
            f"GANGWAY_WORDS=({words})\n",
        ]
    )


def _word(text: str, at_run_time: Mapping[str, str]) -> str:
    """Quoted, except for what is known at run time."""
    found = re.split(f"({'|'.join(at_run_time)})", text)
    return (
        "".join(f'"{at_run_time[part]}"' if part in at_run_time else shlex.quote(part) for part in found if part)
        or "''"
    )


def image_findings(job: JobFile, folder: Path) -> Iterator[Finding]:
    """What prevents a job from running in its image; nothing for a job without one."""
    if job.image is None:
        yield from lost_output_findings(job)
        return
    if shutil.which(APPTAINER) is None:
        yield Finding.error(
            "job.image",
            "image",
            "this engine starts containers with Apptainer, which is not on this machine's PATH",
            "install it on all nodes and here (Gangway's own clusters do not: "
            "docs/slurm.md#images), or load its module before you submit; leave image out to run in the nodes' "
            "own environment; or submit it to another engine",
        )
    home = job.env.get("HOME")
    for place, named in (("--on slurm", str(folder)), ("env.HOME", home or "")):
        if set(_SEPARATORS) & set(named):
            yield Finding.error(
                "job.folder",
                place,
                f"Apptainer cannot mount a folder with a colon or comma in its name: {named}",
                "use another folder, or leave image out",
            )
    for output, mount in outputs_in_mounts(job.outputs, filter(None, (str(folder), job.data_dir, home))):
        yield Finding.error(
            "job.outputs",
            "outputs",
            f"{output}: the container already has {mount} from its node",
            "write to $GANGWAY_RUN_DIR, or to another folder such as /work/results",
        )


def output_folders(job: JobFile, run_dir: str) -> Mapping[str, str]:
    """Where outputs are kept: in the run folder, which moves with the job, whose user mounts them."""
    return {output: f"{run_dir}/outputs{output}" for output in job.outputs}


def exec_args(job: JobFile, folder: Path, run_dir: str) -> Sequence[str]:
    """Apptainer's words after `exec` and the devices, up to the image; the command follows."""
    assert job.image is not None, "asked for it"
    home = f"{folder / HOME_FOLDER}:{job.env.get('HOME', folder / HOME_FOLDER)}"
    mounts = [str(folder), *(f"{kept}:{output}" for output, kept in output_folders(job, run_dir).items())]
    if job.data_dir is not None:
        mounts.append(f"{job.data_dir}:{job.data_dir}:ro")
    return [
        *("--cleanenv", "--home", home),
        *(word for mount in mounts for word in ("--bind", mount)),
        *("--pwd", job.workdir or run_dir),
        f"docker://{job.image}",
    ]


# Files that a job's batch script (images/templates/job/slurm-batch.sh) leaves in the job's folder. All readers raise
# UnreadableError if the content was changed.

_ID_FILE = "slurm-id"
_ENDS = {
    "done": Phase.DONE,
    "failed": Phase.FAILED,
    "bad-input": Phase.BAD_INPUT,
    "over-hours": Phase.OVER_HOURS,
    "cancelled": Phase.CANCELLED,
}


def read_line(folder: JobFolder, name: str) -> str:
    """A file's line; empty if there is no such file yet."""
    try:
        return folder.read(name).decode().strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise _damaged(folder.path / name, str(error)) from None


def read_id(folder: JobFolder) -> str:
    """Empty if not saved yet."""
    kept = read_number(folder, _ID_FILE)
    return "" if kept is None else str(kept)


def save_id(folder: OwnJobFolder, slurm_id: str) -> None:
    """Does not replace the id that the script saved. Without room, the job is found by its comment next time."""
    with suppress(OSError, UnreadableError):
        if not read_id(folder):
            folder.write(_ID_FILE, f"{slurm_id}\n".encode())


def read_number(folder: JobFolder, name: str) -> int | None:
    """The number in a file; None if there is no such file yet."""
    line = read_line(folder, name)
    if not line:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", line):
        raise _damaged(folder.path / name, f"{line[:40]!r} is not a number")
    return int(line)


def sec_since_mark(folder: JobFolder, name: str) -> float:
    """Monotonic seconds since this mark of an own folder was first requested in this boot; 0 if it cannot be stored."""
    try:
        lines = folder.read(name).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        lines = []
    except OSError:
        return 0.0
    if known := [sec for sec in map(sec_since, lines) if sec is not None]:
        return max(known)
    if (own := open_own_folder(folder)) is not None:
        with suppress(OSError), own.append_to(name) as file:
            file.write(f"{boot_stamp()}\n".encode())
    return 0.0


def open_own_folder(folder: JobFolder) -> OwnJobFolder | None:
    """None for another user's folder, which is never changed."""
    with suppress(OSError, NotOwnError):
        return folder.own()
    return None


@dataclass(frozen=True)
class End:
    """A job's end, as its script recorded it."""

    phase: Phase
    code: int
    at: datetime
    why: str


def find_end(folder: JobFolder) -> End | None:
    """None if its script has recorded no end yet."""
    if not (line := read_line(folder, "end")):
        return None
    match = re.fullmatch(r"(\S+) ([0-9]{1,3}) ([0-9]{1,18})(?: (.*))?", line, re.DOTALL)
    if match is None or (phase := _ENDS.get(match[1])) is None:
        raise _damaged(folder.path / "end", f"{line[:40]!r} is not the end of a job")
    return End(phase, int(match[2]), parse_ms(folder.path / "end", int(match[3])), (match[4] or "").strip())


def parse_ms(path: Path, ms: int) -> datetime:
    """Of a file's number, in ms since 1970."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        raise _damaged(path, f"{ms} is not a time in ms since 1970") from None


def _damaged(path: Path, why: str) -> UnreadableError:
    return UnreadableError(
        str(path), f"not written by a job's script: {why}", fix=f"correct it, or move {path.parent} aside"
    )
