"""A Slurm of one's own: what its controller and nodes read, from one SlurmSpec."""
