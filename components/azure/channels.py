"""E-mail addresses as an action group of Azure Monitor, for alarms and budgets. Not a component of its own.

Azure writes to an address at once and asks nobody to confirm it; it does tell people that they are in a group now.
"""

from collections.abc import Sequence

import pulumi
from pulumi_azure_native import monitor

from components.findings import InputError

__all__ = ["MAX_BUDGET_EMAILS", "check_budget_emails", "declare_action_group"]

# Microsoft.Consumption/budgets: how many addresses one notification takes.
MAX_BUDGET_EMAILS = 50
# What stands before each message, in the e-mail's subject too; Azure takes 12 characters.
SHORT_NAME = "gangway"


def check_budget_emails(emails: Sequence[str], place: str = "gangway:budget.emails") -> None:
    """Refuses more addresses than a notification of a budget takes.

    Raises:
        InputError: there are more than MAX_BUDGET_EMAILS, or none.
    """
    if not 1 <= len(emails) <= MAX_BUDGET_EMAILS:
        raise InputError(
            place,
            "a budget of Azure writes to somebody, and to a limited number",
            value=len(emails),
            allowed=f"1 to {MAX_BUDGET_EMAILS} addresses",
            fix="write to a group's address",
        )


def declare_action_group(
    name: str,
    emails: Sequence[str],
    resource_group_name: pulumi.Input[str],
    tags: dict[str, str],
    opts: pulumi.ResourceOptions,
) -> monitor.ActionGroup:
    """Declares a group that writes to each address."""
    return monitor.ActionGroup(
        name,
        resource_group_name=resource_group_name,
        location="Global",
        group_short_name=SHORT_NAME,
        enabled=True,
        email_receivers=[
            monitor.MicrosoftCommonEmailReceiverArgs(
                name=f"person-{position}", email_address=email, use_common_alert_schema=True
            )
            for position, email in enumerate(emails)
        ],
        tags=tags,
        opts=opts,
    )
