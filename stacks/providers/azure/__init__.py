"""Stacks on Azure; `stacks.providers` says what each module is for."""
