"""Which stack has an identity on AWS: by the roles of its machines and logs, which are the account's in all regions."""

import re

import pulumi
import pulumi_aws as aws

from stacks.providers.ownership import Owner

_KINDS = "control-plane|flow-logs|head|node|stop"


def find_owner(stack: str, provider: aws.Provider) -> Owner | None:
    """The stack whose roles are called so. Exception: AWS does not answer."""
    opts = pulumi.InvokeOptions(provider=provider)
    # Pulumi ends a name with seven random digits.
    names = aws.iam.get_roles(name_regex=f"^{re.escape(stack)}-({_KINDS})-[0-9a-f]{{7}}$", opts=opts).names
    if not names:
        return None
    name = min(names)
    return Owner(f"IAM role {name}", aws.iam.get_role(name=name, opts=opts).tags)
