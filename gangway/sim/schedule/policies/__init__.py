"""Scheduling policies, one per file, by their names for `gangway simulate --policy`."""
