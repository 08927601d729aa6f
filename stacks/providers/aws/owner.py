"""Finds the stack that uses an identity in an AWS account: by its IAM roles, which are visible from every region, and
by the alias of a key in this region that `destroy` kept with the run records.
"""

import re
from collections.abc import Callable, Mapping

import pulumi
import pulumi_aws as aws

from gangway.components.aws.identity import key_alias
from gangway.components.core.lookup import Lookup, LookupFailedError, look_up
from gangway.stacks.base.ownership import Owner
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.aws.lookups import LOGIN

_KINDS = "control-plane|flow-logs|head|node|stop"
_NO_ALIAS = ("empty result", "couldn't find resource")
"""The provider's errors for an alias that does not exist."""


def owner_lookups(config: StackConfig, provider: aws.Provider) -> tuple[Callable[[], Owner | None], ...]:
    """The lookups, each of which finds an owner or raises LookupFailedError. Only a stack with a key has an alias."""
    opts = pulumi.InvokeOptions(provider=provider)
    by_role = (lambda: _find_role(config.stack, opts),)
    return (*by_role, lambda: _find_key(config, opts)) if config.encryption == "customer-key" else by_role


def _find_role(stack: str, opts: pulumi.InvokeOptions) -> Owner | None:
    lookup = _lookup(f"the roles of {stack}", "the account", "iam:ListRoles and iam:GetRole")
    # Pulumi appends seven random digits to a name.
    pattern = f"^{re.escape(stack)}-({_KINDS})-[0-9a-f]{{7}}$"
    names = look_up(lookup, aws.iam.get_roles, name_regex=pattern, opts=opts).names
    if not names:
        return None
    name = min(names)
    return Owner(f"IAM role {name}", look_up(lookup, aws.iam.get_role, name=name, opts=opts).tags)


def _find_key(config: StackConfig, opts: pulumi.InvokeOptions) -> Owner | None:
    alias = key_alias(config.stack)
    lookup = _lookup(f"the KMS alias {alias}", config.region, "kms:ListAliases")
    try:
        key = look_up(lookup, aws.kms.get_alias, name=alias, opts=opts).target_key_arn
    except LookupFailedError as failed:
        if any(words in failed.answer for words in _NO_ALIAS):
            return None
        raise
    return Owner(f"KMS key {alias}", _key_tags(config, key, opts), is_kept=True)


def _key_tags(config: StackConfig, key: str, opts: pulumi.InvokeOptions) -> Mapping[str, str]:
    """The key's tags; empty if they are not visible."""
    lookup = _lookup(f"the tags of {key}", config.region, "tag:GetResources")
    function = aws.resourcegroupstaggingapi.get_resources
    try:
        found = look_up(lookup, function, resource_arn_lists=[key], opts=opts).resource_tag_mapping_lists
    except LookupFailedError:  # the key has been found already
        return {}
    return found[0].tags if found else {}


def _lookup(subject: str, where: str, permissions: str) -> Lookup:
    return Lookup(subject, where, "gangway:identity", f"{LOGIN}, with {permissions}")
