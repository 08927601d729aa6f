"""Stacks on Google Cloud; `stacks.providers` says what each module is for."""
