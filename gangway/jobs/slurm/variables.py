"""Slurm's variables: those for reaching it, and those of an allocation, which do not apply to other jobs."""

import re
from collections.abc import Mapping

REACH = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_CLUSTERS")
"""For reaching and authenticating with Slurm; always the caller's."""
OF_ALLOCATION = (
    "(SLURMD?_.*|SBATCH_MEM_BIND.*|CUDA_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|ZE_AFFINITY_MASK)"
)
"""Besides `REACH`, what salloc, sbatch and srun set, as a pattern for Python and grep. SBATCH_ variables are the user's
or the site's.
"""


def without_allocation(variables: Mapping[str, str]) -> dict[str, str]:
    """Removes those of the allocation that the submit ran in: sbatch passes them on, and the job's steps would use
    them.
    """
    if "SLURM_JOB_ID" not in variables:
        return dict(variables)
    return {name: value for name, value in variables.items() if name in REACH or not re.fullmatch(OF_ALLOCATION, name)}
