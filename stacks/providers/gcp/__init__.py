"""Stacks on Google Cloud; `gangway.stacks.providers` says what each module is for."""
