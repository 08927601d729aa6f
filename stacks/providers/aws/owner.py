"""Which stack has an identity on AWS: by the roles of its machines and logs, which are the account's in all regions."""

import re

import pulumi
import pulumi_aws as aws

from components.core.lookup import Lookup, look_up
from stacks.providers.aws.lookups import LOGIN
from stacks.providers.ownership import Owner

_KINDS = "control-plane|flow-logs|head|node|stop"


def find_owner(stack: str, provider: aws.Provider) -> Owner | None:
    """The stack whose roles have this identity. LookupFailedError: AWS does not answer."""
    opts = pulumi.InvokeOptions(provider=provider)
    fix = f"{LOGIN}, with iam:ListRoles and iam:GetRole"
    lookup = Lookup(f"the roles of {stack}", "the account", "gangway:identity", fix)
    # Pulumi ends a name with seven random digits.
    pattern = f"^{re.escape(stack)}-({_KINDS})-[0-9a-f]{{7}}$"
    names = look_up(lookup, aws.iam.get_roles, name_regex=pattern, opts=opts).names
    if not names:
        return None
    name = min(names)
    return Owner(f"IAM role {name}", look_up(lookup, aws.iam.get_role, name=name, opts=opts).tags)
