"""Which stack has an identity on AWS: by the roles of its machines and logs, which are the account's in all regions."""

import re

import pulumi
import pulumi_aws as aws
from pulumi_aws.iam.get_role import get_role
from pulumi_aws.iam.get_roles import get_roles

from stacks.providers.ownership import Owner

_KINDS = "control-plane|flow-logs|head|node|stop"


def find_owner(stack: str, provider: aws.Provider) -> Owner | None:
    """The stack whose roles are called so. Exception: AWS does not answer."""
    opts = pulumi.InvokeOptions(provider=provider)
    # Pulumi ends a name with seven random digits.
    names = get_roles(name_regex=f"^{re.escape(stack)}-({_KINDS})-[0-9a-f]{{7}}$", opts=opts).names
    if not names:
        return None
    name = min(names)
    return Owner(f"IAM role {name}", get_role(name=name, opts=opts).tags)
