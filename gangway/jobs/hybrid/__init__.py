"""One job file over several stacks: where it runs, and its move from one to another."""
