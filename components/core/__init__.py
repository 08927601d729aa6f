"""What every cloud's components share and no cloud owns: capacity, tags, findings, the job, its image."""
