"""Which stack has an identity in a project of Google Cloud: by the service accounts that every stack has."""

from collections.abc import Mapping

import pulumi
import pulumi_gcp as gcp

from components.gcp.identity import account_id
from stacks.providers.ownership import Owner


def find_owner(stack: str, project: str, provider: gcp.Provider) -> Owner | None:
    """The stack whose nodes act as the account called so. Exception: Google does not answer."""
    opts = pulumi.InvokeOptions(provider=provider)
    email = f"{account_id(stack, 'node')}@{project}.iam.gserviceaccount.com"
    found = gcp.serviceaccount.get_s(project=project, opts=opts).accounts
    if not any(account.email == email for account in found):
        return None
    return Owner(f"service account {email}", _labels(stack, project, opts))


def _labels(stack: str, project: str, opts: pulumi.InvokeOptions) -> Mapping[str, str]:
    """The labels of one of the stack's secrets: an account has none. Empty where there is no secret to see."""
    try:
        secrets = gcp.secretmanager.get_secrets(project=project, filter=f"labels.gangway-stack={stack}", opts=opts)
    except Exception:  # whatever the cloud says: the stack is found already
        return {}
    return next((dict(secret.labels) for secret in secrets.secrets), {})
