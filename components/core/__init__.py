"""What the components of all clouds share: capacity, tags, findings, the job, its image."""
