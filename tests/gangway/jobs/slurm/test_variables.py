"""Which variables a submit inside of an allocation hands on."""

from gangway.jobs.slurm.variables import without_allocation

OWN = {
    "HOME": "/root", "MY_SLURM_NOTES": "a", "SBATCH_ACCOUNT": "vision", "SBATCH_PARTITION": "gpu", "SALLOC_QOS": "low",
    "SLURM_CONF": "/own/slurm.conf", "SLURM_CONF_SERVER": "head", "SLURM_JWT": "s3cr3t", "SLURM_CLUSTERS": "lab",
}  # fmt: skip
GIVEN = {
    "SLURM_JOB_ID": "7", "SLURM_MEM_PER_NODE": "100", "SLURM_GPUS_PER_NODE": "1", "SLURMD_NODENAME": "n1",
    "SLURM_STEP_GPUS": "0", "CUDA_VISIBLE_DEVICES": "0", "SBATCH_MEM_BIND_TYPE": "none",
}  # fmt: skip


def test_what_an_allocation_has_given_stays_there() -> None:
    assert without_allocation({**OWN, **GIVEN}) == OWN


def test_outside_of_one_all_are_somebodys_own() -> None:
    own = {**OWN, "SLURM_MPI_TYPE": "pmix", "CUDA_VISIBLE_DEVICES": "0"}
    assert without_allocation(own) == own
