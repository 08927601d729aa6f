"""The rule that protections and keys of retained data are not deleted before it (`components.core.retention`)."""

from collections.abc import Iterator, Sequence

from components.core.findings import Severity
from components.core.retention import RetentionResource, retention_breaches
from stacks.base.provider import Provider
from stacks.base.rule import Rule, kind

PROTECTION_ORDER = Rule(
    code="data.protection-order",
    severity=Severity.ERROR,
    holds="What protects or decrypts retained data is not deleted before it",
    path="gangway:encryption",
    fix="have the data depend on it, set deleted_with for a setting of the data, or retain_on_delete for both",
)


def protection_breaches(provider: Provider, resources: Sequence[RetentionResource]) -> Iterator[str]:
    """The violations among the declared resources of a stack."""
    return retention_breaches(resources, provider.retention, kind)
