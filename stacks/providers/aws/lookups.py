"""The lookups of a stack on AWS, made before its first resource."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pulumi
import pulumi_aws as aws

from gangway.components.core.image import RegistryLogin
from gangway.components.core.lookup import Lookup, look_up
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
