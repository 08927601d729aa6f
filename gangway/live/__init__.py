"""What exists now: status, logs and costs of stacks and jobs, permissions, checks in the cloud, the dashboard."""
