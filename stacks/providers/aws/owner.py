"""Finds the stack that uses an identity in an AWS account, by its IAM roles, which are visible from every region."""

import re

import pulumi
import pulumi_aws as aws

from components.core.lookup import Lookup, look_up
from stacks.providers.aws.lookups import LOGIN
from stacks.providers.ownership import Owner

_KINDS = "control-plane|flow-logs|head|node|stop"


def find_owner(stack: str, provider: aws.Provider) -> Owner | None:
    """The stack whose roles are named by this identity. LookupFailedError: the lookup failed."""
    opts = pulumi.InvokeOptions(provider=provider)
    fix = f"{LOGIN}, with iam:ListRoles and iam:GetRole"
    lookup = Lookup(f"the roles of {stack}", "the account", "gangway:identity", fix)
    # Pulumi appends seven random digits to a name.
    pattern = f"^{re.escape(stack)}-({_KINDS})-[0-9a-f]{{7}}$"
    names = look_up(lookup, aws.iam.get_roles, name_regex=pattern, opts=opts).names
    if not names:
        return None
    name = min(names)
    return Owner(f"IAM role {name}", look_up(lookup, aws.iam.get_role, name=name, opts=opts).tags)
