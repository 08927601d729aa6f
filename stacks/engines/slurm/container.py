"""A job's image in Slurm: each node runs the job in it by Apptainer, which needs no daemon and no root. Pure but for
one look at this machine's programs.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from components.core.findings import Finding
from stacks.config.job_file import JobFile

APPTAINER = "apptainer"
HOME_FOLDER = "home"
"""Of a job's folder, the home of its command: the user's own may have Python packages that are not its image's."""
_PREFIX = "APPTAINERENV_"
"""Variables of this name are the container's, without it; `--cleanenv` lets no other in."""


def image_findings(job: JobFile, folder: Path) -> Iterator[Finding]:
    """What stands in the way of a job's image; nothing for one without."""
    if job.image is None:
        return
    if shutil.which(APPTAINER) is None:
        yield Finding.error(
            "job.image",
            "image",
            "this engine starts containers by Apptainer, and there is none on this machine's PATH",
            "install it on all nodes and here, or load its module before you submit; leave image out to run in the "
            "nodes' own environment; or submit it to another engine",
        )
    if ":" in str(folder):
        yield Finding.error(
            "job.folder-with-colon",
            "image",
            f"a container of Apptainer's is given no folder with a colon in its name: {folder}",
            "another folder behind --on slurm:, or leave image out",
        )


def container_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Of the command, under the names by which they get into the container."""
    return {f"{_PREFIX}{name}": value for name, value in variables.items()}


def exec_words(job: JobFile, folder: Path, run_dir: str) -> Sequence[str]:
    """Apptainer's, behind `exec` and what devices need, up to the image; what it runs comes after them."""
    assert job.image is not None, "asked for it"
    home = f"{folder / HOME_FOLDER}:{job.env.get('HOME', folder / HOME_FOLDER)}"
    data = [] if job.data_dir is None else ["--bind", f"{job.data_dir}:{job.data_dir}:ro"]
    return [
        *("--cleanenv", "--home", home, "--bind", str(folder)),
        *data,
        *("--pwd", job.workdir or run_dir),
        f"docker://{job.image}",
    ]
