"""Commands about jobs on engines and on stacks."""
