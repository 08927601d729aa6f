"""What custom roles of Google Cloud and Azure share: actions on one scope, without further limits."""

from collections.abc import Sequence

from gangway.live.permissions.needs import Need, Use


def role_needs(uses: Sequence[Use], scope: str, limit: str) -> list[Need]:
    """One per action, by action. `limit`: why the scope is no narrower."""
    reasons: dict[str, list[str]] = {}
    for use in uses:
        found = reasons.setdefault(use.action, [])
        if use.reason not in found:
            found.append(use.reason)
    return [Need(action, (scope,), tuple(found), limit) for action, found in sorted(reasons.items())]
