"""An existing Slurm cluster: its commands are on PATH, and all its nodes share a folder."""
