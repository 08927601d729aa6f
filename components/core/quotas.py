"""What a stack needs of a cloud's quotas, in the same words for every cloud. Quotas of large machines begin at zero."""

from dataclasses import dataclass

from components.core.findings import Finding

__all__ = ["QuotaNeed", "count_nodes", "no_quota"]

CODE = "capacity.quota"


@dataclass(frozen=True)
class QuotaNeed:
    """The part of one quota that a stack uses at most.

    Attributes:
        path: config path of what uses it.
        amount: with all nodes up.
        unit: what the quota counts; empty where the name says it.
        name: of the quota, as the cloud's API or console has it.
        place: region, zone or project in which the quota counts.
        users: what the amount is for; empty where the path says it.
        command: shell command that shows the limit.
        note: anything else to know; empty for nothing.
        fix: how to ask for more; empty where the console alone does it.
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
        """The line of the plan."""
        amount = f"{self.amount:,} {self.unit}".rstrip()
        users = f", for {self.users}" if self.users else ""
        note = f"; {self.note}" if self.note else ""
        message = f"{amount} of the quota {self.name} in {self.place}{users}; `{self.command}` shows the limit{note}"
        return Finding.info(CODE, self.path, message, self.fix)


def no_quota(path: str, reason: str) -> Finding:
    """The line of a rung that needs no quota, with the reason."""
    return Finding.info(CODE, path, f"no quota: {reason}")


def count_nodes(number: int, one: str = "node") -> str:
    """`1 node`, `4 nodes`; `one` is another word for them."""
    return f"{number} {one}{'' if number == 1 else 's'}"
