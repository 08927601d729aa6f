"""MachineImage: an AMI in which a node's software is installed already, built by EC2 Image Builder during `up`."""

import base64
import gzip
from typing import NotRequired, TypedDict

import pulumi
from pulumi_aws import iam, imagebuilder

from gangway.components.aws.identity import PULL_ACTIONS, allow, declare_role, document, partition_in, trust
from gangway.components.aws.kept_images import IMAGE_ROLE, ROLE_TAG, KeptImages
from gangway.components.core.findings import InputError
from gangway.components.core.outputs import after, register_outputs

BUILDER_TYPE = "m6i.xlarge"
"""The builder needs no GPU: drivers are the base image's, and the Lustre client is for its kernel."""
BUILD_TIMEOUT = "90m"
DATA_LIMIT = 16_000
"""Characters of a component's document (Image Builder API, CreateComponent, `data`)."""
FIRST_VERSION = "1.0.0"
"""Of everything: a change makes another component and recipe, under other names."""
_POLICIES = ("AmazonSSMManagedInstanceCore", "EC2InstanceProfileForImageBuilder")
"""AWS's own for a builder (Image Builder user guide, "Prerequisites"). It runs our script and no training code."""


class MachineImageArgs(TypedDict):
    """Inputs of MachineImage. `base_image_id`: an AMI of Linux with the SSM agent; `script`: bash, run as root; the
    builder, in `subnet_id`, needs a way to the internet; `repository_arn`: from which it may pull containers; `keep`:
    how many of its AMIs stay, the newest and at least 2, since groups name the last one until `up` ends (only in Python
    programs; without it all stay, also after `destroy`); `root_volume_gib` and `root_device_name` are the nodes'.
    """

    base_image_id: pulumi.Input[str]
    script: pulumi.Input[str]
    subnet_id: pulumi.Input[str]
    security_group_ids: list[pulumi.Input[str]]
    repository_arn: NotRequired[pulumi.Input[str] | None]
    root_volume_gib: int
    root_device_name: str
    kms_key_arn: NotRequired[pulumi.Input[str] | None]
    keep: NotRequired[int | None]
    region: str
    stack: str
    tags: dict[str, str]


def component_document(script: str) -> str:
    """The component's document: the script, packed, since a document has a limit and reads `{{` as its own.

    >>> component_document("#!/usr/bin/env bash").splitlines()[0]
    'schemaVersion: 1.0'
    """
    packed = base64.b64encode(gzip.compress(script.encode(), compresslevel=9, mtime=0)).decode()
    text = f"""\
schemaVersion: 1.0
phases:
  - name: build
    steps:
      - name: Provision
        action: ExecuteBash
        timeoutSeconds: 3600
        inputs:
          commands:
            - base64 -d <<<{packed} | gunzip >/root/provision.sh
            - bash /root/provision.sh && rm /root/provision.sh
"""
    if len(text) > DATA_LIMIT:
        raise InputError(
            "MachineImage.script",
            "too long for a component of Image Builder",
            value=f"{len(text)} characters, packed",
            allowed=f"at most {DATA_LIMIT}",
            fix="install less",
        )
    return text


class MachineImage(pulumi.ComponentResource):
    """An AMI with the script's software. Another script or base builds another AMI, for nodes that start later."""

    image_id: pulumi.Output[str]

    def __init__(self, name: str, args: MachineImageArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:MachineImage", name, None, opts)
        keep = args.get("keep")
        if keep is not None and keep < 2:
            raise InputError("MachineImage.keep", "too few", value=keep, allowed="2 or more", fix="keep=2")
        self._child, self._args = pulumi.ResourceOptions(parent=self), args
        self._tags = {**args["tags"], ROLE_TAG: IMAGE_ROLE}
        image = imagebuilder.Image(
            f"{name}-image",
            image_recipe_arn=self._recipe(f"{name}-image").arn,
            infrastructure_configuration_arn=self._infrastructure(f"{name}-image").arn,
            distribution_configuration_arn=self._distribution(f"{name}-image").arn,
            # They would start another machine, and we have none.
            image_tests_configuration=imagebuilder.ImageImageTestsConfigurationArgs(image_tests_enabled=False),
            tags=self._tags,
            opts=pulumi.ResourceOptions(parent=self, custom_timeouts=pulumi.CustomTimeouts(create=BUILD_TIMEOUT)),
        )
        made = image.output_resources.apply(
            lambda found: next(str(ami.image) for resource in found for ami in resource.amis or ())
        )
        self.image_id = made
        if keep is not None:
            # Nodes are deleted before their image.
            self.image_id = after(
                made, KeptImages(f"{name}-images", args["region"], args["stack"], keep, made, self._child)
            )
        register_outputs(self)

    def _recipe(self, name: str) -> imagebuilder.ImageRecipe:
        args = self._args
        component = imagebuilder.Component(
            name,
            platform="Linux",
            version=FIRST_VERSION,
            data=pulumi.Output.from_input(args["script"]).apply(component_document),
            tags=self._tags,
            opts=self._child,
        )
        disk = imagebuilder.ImageRecipeBlockDeviceMappingEbsArgs(
            volume_size=args["root_volume_gib"],
            volume_type="gp3",
            encrypted="true",
            kms_key_id=args.get("kms_key_arn"),
            delete_on_termination="true",
        )
        return imagebuilder.ImageRecipe(
            name,
            parent_image=args["base_image_id"],
            version=FIRST_VERSION,
            components=[imagebuilder.ImageRecipeComponentArgs(component_arn=component.arn)],
            block_device_mappings=[
                imagebuilder.ImageRecipeBlockDeviceMappingArgs(device_name=args["root_device_name"], ebs=disk)
            ],
            tags=self._tags,
            opts=self._child,
        )

    def _infrastructure(self, name: str) -> imagebuilder.InfrastructureConfiguration:
        args = self._args
        return imagebuilder.InfrastructureConfiguration(
            name,
            instance_profile_name=self._profile(name),
            instance_types=[BUILDER_TYPE],
            subnet_id=args["subnet_id"],
            security_group_ids=args["security_group_ids"],
            terminate_instance_on_failure=True,
            instance_metadata_options=imagebuilder.InfrastructureConfigurationInstanceMetadataOptionsArgs(
                http_tokens="required", http_put_response_hop_limit=1
            ),
            resource_tags=self._tags,
            tags=self._tags,
            opts=self._child,
        )

    def _profile(self, name: str) -> pulumi.Output[str]:
        """The builder's instance profile, whose name waits for the permissions."""
        arn, tags = self._args.get("repository_arn"), self._args["tags"]
        login = allow("LogInToRegistry", ["ecr:GetAuthorizationToken"], "*")
        policy = pulumi.Output.from_input(arn).apply(
            lambda known: document([login, allow("PullImages", list(PULL_ACTIONS), known)] if known else [login])
        )
        role, own = declare_role(name, trust("ec2.amazonaws.com"), policy, tags, self._child)
        attached = [
            iam.RolePolicyAttachment(
                f"{name}-{policy_name}",
                role=role.name,
                policy_arn=f"arn:{partition_in(self._args['region'])}:iam::aws:policy/{policy_name}",
                opts=self._child,
            )
            for policy_name in _POLICIES
        ]
        profile = iam.InstanceProfile(name, role=role.name, tags=tags, opts=self._child)
        return after(profile.name, own, *attached)

    def _distribution(self, name: str) -> imagebuilder.DistributionConfiguration:
        ami = imagebuilder.DistributionConfigurationDistributionAmiDistributionConfigurationArgs(
            name=f"{name} {{{{ imagebuilder:buildDate }}}}",
            kms_key_id=self._args.get("kms_key_arn"),
            ami_tags=self._tags,
        )
        place = imagebuilder.DistributionConfigurationDistributionArgs(
            region=self._args["region"], ami_distribution_configuration=ami
        )
        return imagebuilder.DistributionConfiguration(name, distributions=[place], tags=self._tags, opts=self._child)
