"""Stacks on Amazon Web Services; `stacks.providers` says what each module is for."""
