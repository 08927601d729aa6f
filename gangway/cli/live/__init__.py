"""Commands about what exists now, or may be created."""
