"""A Slurm cluster: the files of its controller and nodes, from one SlurmSpec."""
