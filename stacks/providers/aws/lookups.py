"""The lookups of a stack on AWS, made before its first resource: images, a login, another owner of its identity."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pulumi
import pulumi_aws as aws

from gangway.components.aws.identity import key_alias
from gangway.components.core.image import RegistryLogin
from gangway.components.core.lookup import Lookup, LookupFailedError, look_up
from gangway.stacks.base.ownership import Owner
from gangway.stacks.config.stack_config import StackConfig

LOGIN = "log in (`aws sts get-caller-identity` must answer)"
_BY_SSM = "resolve:ssm:"


@dataclass(frozen=True)
class Lookups:
    """The answers. `images`: the newest AMIs, by `nodes` or `head`; `login`: None if no image is built."""

    images: Mapping[str, str] = field(default_factory=dict)
    login: RegistryLogin | None = None


def look_up_all(config: StackConfig, provider: aws.Provider, images: Mapping[str, str], builds: bool) -> Lookups:
    """Makes all lookups. `images`: SSM parameters that name AMIs. LookupFailedError: the first that fails."""
    opts = pulumi.InvokeOptions(provider=provider)
    found = {
        what: _look_up_image(config, what, reference.removeprefix(_BY_SSM), opts) for what, reference in images.items()
    }
    return Lookups(found, _look_up_login(config, opts) if builds else None)


def _look_up_image(config: StackConfig, what: str, parameter: str, opts: pulumi.InvokeOptions) -> str:
    command = f"aws ssm get-parameter --region {config.region} --name {parameter}"
    fix = f"{LOGIN}; `{command}` must name an AMI in gangway:region"
    if what == "nodes":
        fix += f"; or set gangway:cluster.image_id to an AMI of {config.region}"
    place = "gangway:cluster.image_id" if what == "nodes" else "gangway:region"
    lookup = Lookup(f"the newest image of the {what} (SSM parameter {parameter})", config.region, place, fix)
    # The output `value` is a secret, and an AMI is none.
    return look_up(lookup, aws.ssm.get_parameter, name=parameter, opts=opts).insecure_value


def _look_up_login(config: StackConfig, opts: pulumi.InvokeOptions) -> RegistryLogin:
    fix = f"{LOGIN}, with ecr:GetAuthorizationToken; or set gangway:image.prebuilt to an image in ECR"
    lookup = Lookup("the login of the image registry (ECR)", config.region, "gangway:image", fix)
    login = look_up(lookup, aws.ecr.get_authorization_token, opts=opts)
    password = pulumi.Output.secret(login.password)
    return {"address": login.proxy_endpoint, "username": login.user_name, "password": password}


_KINDS = "control-plane|flow-logs|head|node|stop"
_NO_ALIAS = ("empty result", "couldn't find resource")  # the provider's errors for an alias that does not exist


def owner_lookups(config: StackConfig, provider: aws.Provider) -> tuple[Callable[[], Owner | None], ...]:
    """The lookups, each of which finds an owner or raises LookupFailedError. Only a stack with a key has an alias."""
    opts = pulumi.InvokeOptions(provider=provider)
    by_role = (lambda: _find_role(config.stack, opts),)
    return (*by_role, lambda: _find_key(config, opts)) if config.encryption == "customer-key" else by_role


def role_pattern(stack: str) -> str:
    """A regular expression of the names of a stack's roles: Pulumi appends seven random digits."""
    return f"^{re.escape(stack)}-({_KINDS})-[0-9a-f]{{7}}$"


def _find_role(stack: str, opts: pulumi.InvokeOptions) -> Owner | None:
    lookup = _lookup(f"the roles of {stack}", "the account", "iam:ListRoles and iam:GetRole")
    names = look_up(lookup, aws.iam.get_roles, name_regex=role_pattern(stack), opts=opts).names
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
    lookup = _lookup(f"the tags of {key}", config.region, "tag:GetResources")
    function = aws.resourcegroupstaggingapi.get_resources
    try:
        found = look_up(lookup, function, resource_arn_lists=[key], opts=opts).resource_tag_mapping_lists
    except LookupFailedError:  # the key has been found already
        return {}
    return found[0].tags if found else {}


def _lookup(subject: str, where: str, permissions: str) -> Lookup:
    return Lookup(subject, where, "gangway:identity", f"{LOGIN}, with {permissions}")
