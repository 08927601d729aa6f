"""What a person should know before `up` on Azure about data and money: file system, import, key, budget. Pure.

Findings about machines are `findings`.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from components.azure.budget import MAX_MONTHS_AHEAD, months_ahead
from components.findings import Finding, Severity
from stacks.providers.azure.plan import AzurePlan
from stacks.providers.shared_findings import nodes_stay
from stacks.settings.config import StackConfig

__all__ = ["key", "money", "storage"]


def storage(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    """Managed Lustre and what is behind it."""
    section, source = config.storage, planned.source
    if section is None:
        return
    if source is not None:
        yield Finding(
            Severity.INFO,
            "storage.imported-once",
            "gangway:storage.source",
            "the names of the blobs appear when the file system is made, and each blob is fetched when it is first "
            "read; blobs that come later do not appear by themselves",
        )
        yield Finding(
            Severity.INFO,
            "storage.whole-account",
            "gangway:azure.source_account_id",
            f"Managed Lustre's own service may read and write all of {source.account}, not only {source.container}, "
            "and takes an account that allows access by key: Azure documents no smaller right",
            "keep the data in a storage account of its own",
        )
    if config.encryption == "customer-key":
        yield Finding(
            Severity.INFO,
            "storage.key-stays",
            "gangway:encryption",
            "the file system stays under the key's version of the day it was made, as nothing turns it to a newer one; "
            "disks and the run bucket follow the rotation",
        )


def key(config: StackConfig) -> Iterable[Finding]:
    """What a key of one's own leaves behind."""
    if config.encryption == "customer-key":
        yield Finding(
            Severity.INFO,
            "encryption.key-kept",
            "gangway:encryption",
            "vault, key and the identity that uses it stay when the stack is destroyed: nobody could read the runs, "
            "which stay too, without them",
            "delete the resource group when the runs are no longer wanted; Azure then keeps the vault for 30 days",
        )


def money(config: StackConfig) -> Iterable[Finding]:
    """The budget, and nodes that stay."""
    budget, section = config.budget, config.azure
    assert section is not None, "stacks.providers.settings has seen to it"
    yield Finding(
        Severity.INFO,
        "budget.currency",
        "gangway:budget.monthly_usd",
        f"Azure reads {budget.monthly_usd:,.2f} in the currency of the subscription's bill, and the plan compares it "
        "with prices in dollars",
        "where the bill is in another currency, expect alarms and stop at that amount of it",
    )
    yield from _begins(section.budget_starts_on)
    if budget.stop_at_percent is not None:
        yield Finding(
            Severity.INFO,
            "budget.late",
            "gangway:budget.stop_at_percent",
            "no hard limit: Azure brings costs up to date a few times a day, and the stop looks each hour, so it comes "
            "hours late",
        )
    yield from nodes_stay(config)


def _begins(starts_on: str) -> Iterable[Finding]:
    """Azure makes a budget that begins this month, or in one of the next twelve; that of one that stands it leaves."""
    today = datetime.now(UTC).date()
    ahead, path = months_ahead(starts_on, today), "gangway:azure.budget_starts_on"
    if ahead < 0:
        yield Finding(
            Severity.WARNING,
            "budget.began",
            path,
            f"{starts_on} is past: Azure refuses to make a budget that begins before the current month; one that "
            "stands goes on",
            f"for a first `up` set budget_starts_on: '{today.replace(day=1)}'; leave it as it is where the stack "
            "stands",
        )
    elif ahead > MAX_MONTHS_AHEAD:
        yield Finding(
            Severity.ERROR,
            "budget.too-far",
            path,
            f"{starts_on} is {ahead} months ahead: Azure makes no budget that begins more than {MAX_MONTHS_AHEAD} "
            "months from now",
            f"set budget_starts_on: '{today.replace(day=1)}'",
        )
