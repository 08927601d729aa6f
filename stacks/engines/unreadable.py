"""The error of every engine that keeps something of a job."""

from components.core.findings import InputError


class UnreadableError(InputError):
    """What an engine keeps of one job, and this release cannot read."""
