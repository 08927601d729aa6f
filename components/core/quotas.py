"""A stack's need of a cloud's quotas, in the same words for every cloud. Quotas of large machines start at zero."""

from dataclasses import dataclass

from gangway.components.core.findings import Finding

__all__ = ["QuotaNeed", "count_nodes", "no_quota"]

CODE = "capacity.quota"


@dataclass(frozen=True)
class QuotaNeed:
    """The most of one quota that a stack uses.

    Attributes:
        amount: with all nodes up.
        unit: empty if the name says it.
        name: the quota's name in the cloud's API or console.
        place: region, zone or project of the quota.
        users: what the amount is for; empty if the path says it.
        fix: how to request more; empty if only the console can.
    """

    path: str
    amount: int
    unit: str
    name: str
    place: str
    users: str
    command: str
    note: str = ""
    fix: str = ""

    def finding(self) -> Finding:
        """The quota's line in the plan."""
        amount = f"{self.amount:,} {self.unit}".rstrip()
        users = f", for {self.users}" if self.users else ""
        note = f"; {self.note}" if self.note else ""
        message = f"{amount} of the quota {self.name} in {self.place}{users}; `{self.command}` shows the limit{note}"
        return Finding.info(CODE, self.path, message, self.fix)


def no_quota(path: str, reason: str) -> Finding:
    """A rung's line that needs no quota, with the reason."""
    return Finding.info(CODE, path, f"no quota: {reason}")


def count_nodes(number: int, one: str = "node") -> str:
    """`1 node`, `4 nodes`; `one` is another singular noun."""
    return f"{number} {one}{'' if number == 1 else 's'}"
