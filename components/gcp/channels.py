"""E-mail addresses as notification channels of Cloud Monitoring, for alarms and budgets. Not a component of its own.

Unlike SNS, Google sends to an address at once and asks nobody to confirm it.
"""

from collections.abc import Sequence

import pulumi
from pulumi_gcp import monitoring

from components.findings import InputError

__all__ = ["MAX_BUDGET_CHANNELS", "check_budget_emails", "declare_channels"]

MAX_BUDGET_CHANNELS = 5


def check_budget_emails(emails: Sequence[str], place: str = "gangway:budget.emails") -> None:
    """Refuses more addresses than a budget notifies.

    Raises:
        InputError: there are more than MAX_BUDGET_CHANNELS.
    """
    if len(emails) > MAX_BUDGET_CHANNELS:
        raise InputError(
            place,
            "more addresses than a budget of Google Cloud writes to",
            value=len(emails),
            allowed=f"at most {MAX_BUDGET_CHANNELS}",
            fix=f"remove {len(emails) - MAX_BUDGET_CHANNELS}, or write to a group's address",
        )


def declare_channels(
    name: str,
    emails: Sequence[str],
    project: pulumi.Input[str],
    tags: dict[str, str],
    opts: pulumi.ResourceOptions,
) -> list[monitoring.NotificationChannel]:
    """Declares a channel for each address."""
    return [
        monitoring.NotificationChannel(
            f"{name}-{position}",
            project=project,
            display_name=email,
            type="email",
            labels={"email_address": email},
            user_labels=tags,
            opts=opts,
        )
        for position, email in enumerate(emails)
    ]
