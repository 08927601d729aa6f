"""Variables that are Slurm's own: by which it is found, and those of an allocation, which are of no job in another."""

import re
from collections.abc import Mapping

REACH = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_CLUSTERS")
"""By which Slurm's commands find it and are let in: those of who calls them, whoever the job is of."""
OF_ALLOCATION = (
    "(SLURMD?_.*|SBATCH_MEM_BIND.*|CUDA_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|ZE_AFFINITY_MASK)"
)
"""Besides `REACH`, what salloc, sbatch and srun give, as Python and grep read it. What is asked of sbatch by SBATCH_ is
a user's own, or a site's.
"""


def outside(variables: Mapping[str, str]) -> dict[str, str]:
    """Without those of the allocation that a submit is in, if any: sbatch hands all on, and the steps of the job would
    take them for their own.
    """
    if "SLURM_JOB_ID" not in variables:
        return dict(variables)
    return {name: value for name, value in variables.items() if name in REACH or not re.fullmatch(OF_ALLOCATION, name)}
