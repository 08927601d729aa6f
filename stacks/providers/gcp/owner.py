"""Finds the stack that uses an identity in a Google Cloud project, by the service account that every stack has."""

from collections.abc import Mapping

import pulumi
import pulumi_gcp as gcp

from gangway.components.core.lookup import Lookup, LookupFailedError, look_up
from gangway.components.gcp.identity import account_id
from gangway.stacks.base.ownership import Owner
from gangway.stacks.providers.gcp.lookups import LOGIN


def find_owner(stack: str, project: str, provider: gcp.Provider) -> Owner | None:
    """The stack whose nodes use the service account of this identity. LookupFailedError: the lookup failed."""
    opts = pulumi.InvokeOptions(provider=provider)
    email = f"{account_id(stack, 'node')}@{project}.iam.gserviceaccount.com"
    lookup = _lookup("the service accounts", project, "iam.serviceAccounts.list")
    found = look_up(lookup, gcp.serviceaccount.get_s, project=project, opts=opts).accounts
    if not any(account.email == email for account in found):
        return None
    return Owner(f"service account {email}", _labels(stack, project, opts))


def _labels(stack: str, project: str, opts: pulumi.InvokeOptions) -> Mapping[str, str]:
    """The labels of one of the stack's secrets, as accounts have no labels. Empty if no secret is visible."""
    lookup = _lookup("the secrets", project, "secretmanager.secrets.list")
    labels = f"labels.gangway-stack={stack}"
    function = gcp.secretmanager.get_secrets
    try:
        secrets = look_up(lookup, function, project=project, filter=labels, opts=opts).secrets
    except LookupFailedError:  # the stack is known without labels
        return {}
    return next((dict(secret.labels) for secret in secrets), {})


def _lookup(subject: str, project: str, permission: str) -> Lookup:
    return Lookup(subject, f"project {project}", "gangway:identity", f"{LOGIN} as a user with {permission}")
