"""A job's image in Slurm: each node runs it with Apptainer, which needs neither a daemon nor root. Pure except for a
look at PATH.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gangway.components.core.findings import Finding
from gangway.jobs.base import lost_output_findings
from gangway.stacks.config.job_file import JobFile
from gangway.stacks.config.own_command import outputs_in_mounts

APPTAINER = "apptainer"
HOME_FOLDER = "home"
"""The command's home, in the job's folder: the user's own may hold Python packages that do not fit the image."""
_SEPARATORS = ":,"
"""Separators inside and between Apptainer's mounts."""
_PREFIX = "APPTAINERENV_"
"""Variables with this prefix reach the container without it; `--cleanenv` keeps others out."""


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
    """Where each output is kept: in the run folder, which moves with the job. They are mounted by the job's own user,
    so a link that the job puts there leads nowhere new.
    """
    return {output: f"{run_dir}/outputs{output}" for output in job.outputs}


def container_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """The command's variables, named so that they reach the container."""
    return {f"{_PREFIX}{name}": value for name, value in variables.items()}


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
