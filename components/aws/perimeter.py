"""Egress of an AWS network without a NAT gateway: its endpoints, their policies, and the names its resolver answers."""

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network
from typing import Any

import pulumi
from pulumi_aws import route53

from gangway.components.aws.identity import (
    GROUP_ACTIONS,
    KEY_ACTIONS,
    LEAVE_ACTION,
    LOG_ACTIONS,
    OPEN_RESOURCES,
    PULL_ACTIONS,
    Statement,
    allow,
    document,
    parameter_name,
    partition_in,
)
from gangway.components.core.dependencies import after
from gangway.components.core.signing_key import KEY_USES

ENDPOINT_SERVICES: Mapping[str, str] = {
    "autoscaling": "a node's word about itself to its group",
    "ec2messages": "Session Manager",
    "ecr.api": "login for the image pull",
    "ecr.dkr": "the image pull; its layers come from S3",
    "logs": "Docker's log driver",
    "ssm": "Session Manager, and the keys of a stack",
    "ssmmessages": "Session Manager",
}
"""The services that machines call, each by an interface endpoint billed per hour, and their uses.

S3 has a free gateway endpoint. Not EC2: only Prometheus on the head node calls it, and runs only with a NAT gateway,
since its image is outside AWS. Not KMS: S3 and EBS call it themselves.
"""

EVERYTHING = "*."
# The first position of a VPC's rule groups: AssociateFirewallRuleGroup takes values between 100 and 9900.
PRIORITY = 101


def endpoint_policy(service: str, account: str, repository_arn: str | None = None) -> dict[str, Any]:
    """The policy of an interface endpoint: the calls that our machines' roles allow, by identities of `account` on
    resources of `account`. `repository_arn`: the only source of images, possibly of another account; None for all of
    the account's.

    An endpoint's policy grants nothing: it is the upper limit. AWS's examples restrict both ends by these keys
    (aws-samples/data-perimeter-policy-examples, vpc_endpoint_policies); ECR's user guide has one policy for both of its
    endpoints ("Create a VPC endpoint policy for your Amazon ECR VPC endpoints"); Systems Manager's three have one in
    awslabs/landing-zone-accelerator-on-aws. aws:ResourceAccount is checked only for actions with a resource: IAM's user
    guide promises it for "most".
    """
    own = {"aws:PrincipalAccount": account}
    both = {**own, "aws:ResourceAccount": account}
    prefix = f"{service.partition('.')[0]}:"
    # These name no resource: they act in the caller's own account.
    statements = [_pass("OwnCallers", [action for action in OPEN_RESOURCES if action.startswith(prefix)], "*", own)]
    match service:
        case "autoscaling":
            statements.append(_pass("OwnGroups", [*GROUP_ACTIONS, LEAVE_ACTION], "*", both))
        case "ssm":
            keys = [f"arn:*:ssm:*:{account}:parameter{parameter_name('*', what)}" for what in KEY_USES]
            statements.append(_pass("StackKeys", KEY_ACTIONS, keys, both))
        case "logs":
            statements.append(_pass("OwnLogs", LOG_ACTIONS, "*", both))
        case "ecr.api" | "ecr.dkr" if repository_arn is None:
            statements.append(_pass("OwnImages", PULL_ACTIONS, "*", both))
        case "ecr.api" | "ecr.dkr":
            statements.append(_pass("OneRepository", PULL_ACTIONS, repository_arn, own))
    return document([statement for statement in statements if statement["Action"]])


def s3_endpoint_policy(region: str, bucket_arns: list[str], account: str) -> dict[str, Any]:
    """Open the S3 gateway to `account`'s identities for these buckets of its own, and to everybody, read-only, for
    AWS's buckets that a machine reads without our identities: ECR's layers by presigned links, and Amazon Linux 2023's
    packages with the Lustre client. Bucket and role policies decide the rest.
    """
    buckets = f"arn:{partition_in(region)}:s3:::"
    own = {"aws:PrincipalAccount": account, "aws:ResourceAccount": account}
    ours = [part for arn in bucket_arns for part in (arn, f"{arn}/*")]
    return document(
        [
            _pass("OurBuckets", ["s3:*"], ours, own),
            _pass("ImageLayers", ["s3:GetObject"], f"{buckets}prod-{region}-starport-layer-bucket/*"),
            _pass("Packages", ["s3:GetObject"], f"{buckets}al2023-repos-{region}-de612dc2/*"),
        ]
    )


def _pass(sid: str, actions: Sequence[str], resource: Any, equal: Mapping[str, str] | None = None) -> Statement:
    condition = {"StringEquals": dict(equal)} if equal else None
    return {**allow(sid, list(actions), resource, condition), "Principal": "*"}


def answered_names(region: str, cidr: str, zone: str | None) -> tuple[str, ...]:
    """The names that machines may look up, for DNS Firewall, with the root's dot (without it every refresh finds a
    difference: hashicorp/terraform-provider-aws#23543): endpoints, S3 and FSx in `region`, the machines, and their
    private `zone` if any. AWS answers them all, so no query reaches a name server of a third party.
    """
    suffix = f"{region}.amazonaws.com{'.cn' if partition_in(region) == 'aws-cn' else ''}"
    # `ecr.dkr` is the endpoint's service and `dkr.ecr` the host's name, which begins with the account.
    hosts = [".".join(reversed(service.split("."))) for service in ENDPOINT_SERVICES]
    own = ["*.dkr.ecr" if host == "dkr.ecr" else host for host in hosts]
    # Amazon Linux fetches its packages by the dual-stack name.
    own += ["s3", "*.s3", "*.s3.dualstack", "*.fsx"]
    inside = "ec2.internal" if region == "us-east-1" else f"{region}.compute.internal"
    high, low, *_ = str(IPv4Network(cidr).network_address).split(".")
    names = [
        *(f"{host}.{suffix}" for host in own),
        # Older AWS command lines use this for that region's S3.
        *(["s3.amazonaws.com", "*.s3.amazonaws.com"] if region == "us-east-1" else []),
        f"*.{inside}",
        f"*.{low}.{high}.in-addr.arpa",
        *([] if zone is None else [f"*.{zone}"]),
    ]
    return tuple(f"{name}." for name in names)


def declare_dns_firewall(
    name: str,
    vpc_id: pulumi.Input[str],
    answered: Sequence[str],
    tags: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> pulumi.CustomResource:
    """Have the VPC's resolver answer only these names; nothing if the firewall fails. Returns what a machine awaits."""
    group = route53.ResolverFirewallRuleGroup(f"{name}-dns", tags={**tags, "Name": f"{name}-dns"}, opts=opts)
    rules: list[pulumi.CustomResource] = []
    for priority, (key, domains) in enumerate({"answered": list(answered), "refused": [EVERYTHING]}.items(), 1):
        label, refused = f"{name}-dns-{key}", key == "refused"
        listed = route53.ResolverFirewallDomainList(label, domains=domains, tags={**tags, "Name": label}, opts=opts)
        rule = route53.ResolverFirewallRule(
            label,
            firewall_rule_group_id=group.id,
            firewall_domain_list_id=listed.id,
            priority=priority * 100,
            action="BLOCK" if refused else "ALLOW",
            block_response="NXDOMAIN" if refused else None,
            # If an AWS name is an alias of another AWS name, that is AWS's choice.
            firewall_domain_redirection_action=None if refused else "TRUST_REDIRECTION_DOMAIN",
            opts=opts,
        )
        rules.append(rule)
    # With the second rule alone nothing would be answered.
    whole: pulumi.Output[str] = after(group.id, *rules)
    return route53.ResolverFirewallRuleGroupAssociation(
        f"{name}-dns",
        firewall_rule_group_id=whole,
        vpc_id=vpc_id,
        priority=PRIORITY,
        tags={**tags, "Name": f"{name}-dns"},
        opts=opts,
    )
