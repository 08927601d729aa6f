"""HeadNode: one small on-demand machine that outlives the workers, without a public address, with a name of its own.

It holds the rendezvous store and puts the run record; what runs on it is its user data. The AMI comes through a launch
template, because only EC2 resolves an SSM reference without a call at preview; a newer AMI alone does not replace the
machine, a change of its user data does. The root disk stands in the template too: for a disk that the instance itself
declares, the provider asks EC2 for the AMI by the unresolved reference, and fails (hashicorp/terraform-provider-aws
issue 43488). Not a bastion: people come in through Session Manager. Not highly available either: when it fails EC2
recovers it, the workers train on, and only joining waits.
"""

from typing import NotRequired, TypedDict

import pulumi
from pulumi_aws import ec2, route53

from components.aws.launch import root_volume

__all__ = ["HEAD_IMAGE", "HeadNode", "HeadNodeArgs"]

# "Reference the latest AMIs using Systems Manager public parameters", Amazon Linux 2023 user guide.
HEAD_IMAGE = "resolve:ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
# Of every Amazon Linux.
ROOT_DEVICE = "/dev/xvda"
_DNS_TTL_SEC = 60


class HeadNodeArgs(TypedDict):
    """Inputs of HeadNode.

    `user_data` is base64 (gzip is fine). `host_name` is the full name of the A record, `zone_id` the private zone it
    goes to. `root_volume_gib` (60) holds the trainer's image, `machine_type` is t3.medium unless given, and `image_id`
    is Amazon Linux 2023's newest AMI unless given. `root_device_name` is the AMI's own (/dev/xvda): an AMI of another
    system needs it said, such as /dev/sda1 for Ubuntu. `kms_key_arn` encrypts the disk instead of AWS's own key.
    """

    subnet_id: pulumi.Input[str]
    security_group_ids: list[pulumi.Input[str]]
    instance_profile_arn: pulumi.Input[str]
    user_data: pulumi.Input[str]
    host_name: str
    zone_id: pulumi.Input[str]
    machine_type: NotRequired[str]
    image_id: NotRequired[str]
    root_device_name: NotRequired[str]
    root_volume_gib: NotRequired[int]
    kms_key_arn: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


class HeadNode(pulumi.ComponentResource):
    """The machine at which the workers meet."""

    instance_id: pulumi.Output[str]
    private_ip: pulumi.Output[str]
    host: pulumi.Output[str]

    def __init__(self, name: str, args: HeadNodeArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:HeadNode", name, None, opts)
        self._child = pulumi.ResourceOptions(parent=self)
        # Tells it from the workers, which carry the same tag of the stack.
        tags = {**args["tags"], "Name": f"{name}-head", "gangway:role": "head"}
        instance = self._instance(name, args, tags)
        record = route53.Record(
            f"{name}-head",
            zone_id=args["zone_id"],
            name=args["host_name"],
            type="A",
            ttl=_DNS_TTL_SEC,
            records=[instance.private_ip],
            opts=self._child,
        )
        self.instance_id = instance.id
        self.private_ip = instance.private_ip
        self.host = record.name
        self.register_outputs(
            {"instance_id": self.instance_id, "private_ip": self.private_ip, "host": self.host},
        )

    def _instance(self, name: str, args: HeadNodeArgs, tags: dict[str, str]) -> ec2.Instance:
        template = ec2.LaunchTemplate(
            f"{name}-head",
            image_id=args.get("image_id", HEAD_IMAGE),
            iam_instance_profile=ec2.LaunchTemplateIamInstanceProfileArgs(arn=args["instance_profile_arn"]),
            block_device_mappings=[
                root_volume(
                    args.get("root_device_name", ROOT_DEVICE), args.get("root_volume_gib", 60), args.get("kms_key_arn")
                )
            ],
            tags=tags,
            opts=self._child,
        )
        return ec2.Instance(
            f"{name}-head",
            launch_template=ec2.InstanceLaunchTemplateArgs(id=template.id, version=template.latest_version.apply(str)),
            instance_type=args.get("machine_type", "t3.medium"),
            subnet_id=args["subnet_id"],
            vpc_security_group_ids=args["security_group_ids"],
            associate_public_ip_address=False,
            user_data_base64=args["user_data"],
            user_data_replace_on_change=True,
            # Hop limit 2: Prometheus and the store run in containers.
            metadata_options=ec2.InstanceMetadataOptionsArgs(
                http_endpoint="enabled", http_tokens="required", http_put_response_hop_limit=2
            ),
            # EC2 moves the machine to sound hardware by itself, with the same address.
            maintenance_options=ec2.InstanceMaintenanceOptionsArgs(auto_recovery="default"),
            instance_initiated_shutdown_behavior="stop",
            tags=tags,
            volume_tags=tags,
            opts=self._child,
        )
