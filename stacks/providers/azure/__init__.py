"""Stacks on Azure; `gangway.stacks.providers` says what each module is for."""
