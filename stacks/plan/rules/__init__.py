"""Guardrails: rules for all stacks, as pure functions over declared resources and the stack file."""
