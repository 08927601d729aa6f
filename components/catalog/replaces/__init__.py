"""Which inputs of a resource replace it when they change."""
