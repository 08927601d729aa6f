"""EksCluster: a control plane, private by default, add-ons, two system machines, roles; jobs run on an EfaNodePool."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_aws import cloudwatch, ec2, eks, iam

from gangway.components.aws.eks_nodes import ROOT_DEVICE, SYSTEM_MACHINE, SYSTEM_NODES, JoinSpec
from gangway.components.aws.identity import (
    SESSION_ACTIONS,
    Statement,
    allow,
    allow_on_groups,
    document,
    get_partition,
    trust,
)
from gangway.components.aws.launch import root_volume
from gangway.components.core.outputs import after, register_outputs
from gangway.components.kubernetes.charts import AUTOSCALER_ACCOUNT, SYSTEM
from gangway.components.kubernetes.spec import POOL_LABEL

CLUSTER_POLICY = "AmazonEKSClusterPolicy"
MACHINE_POLICIES = ("AmazonEC2ContainerRegistryPullOnly", "AmazonEKSWorkerNodePolicy")
"""Policies of a machine (EKS user guide, "Amazon EKS node IAM role"), out of its pods' reach."""
CNI_POLICY = "AmazonEKS_CNI_Policy"
_READ_ACTIONS = (
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeAutoScalingInstances",
    "autoscaling:DescribeLaunchConfigurations",
    "autoscaling:DescribeScalingActivities",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeLaunchTemplateVersions",
    "ec2:GetInstanceTypesFromInstanceRequirements",
)  # the autoscaler's read actions: none supports a narrower resource
_SIZE_ACTIONS = ("autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup")


def pod_trust(cluster_arn: str, account: tuple[str, str]) -> dict[str, Any]:
    """Let EKS Pod Identity assume a role only for the pods of one service account (namespace, name) of one cluster."""
    tags = ("eks-cluster-arn", "kubernetes-namespace", "kubernetes-service-account")
    wanted = {f"aws:RequestTag/{tag}": value for tag, value in zip(tags, (cluster_arn, *account), strict=True)}
    allowed: Statement = {
        "Effect": "Allow",
        "Principal": {"Service": "pods.eks.amazonaws.com"},
        "Action": ["sts:AssumeRole", "sts:TagSession"],
        "Condition": {"StringEquals": wanted},
    }
    return document([allowed])


def autoscaler_policy(stack: str, beside: str) -> dict[str, Any]:
    """Read groups, and resize those with the stack's tag. `beside`: an ARN of the partition."""
    return document(
        [
            allow("LookAtGroups", list(_READ_ACTIONS), "*"),
            allow_on_groups(stack, "SetSizes", list(_SIZE_ACTIONS), beside),
        ]
    )


LOG_KINDS = ("api", "audit", "authenticator", "controllerManager", "scheduler")  # all logs of a control plane
CNI_ACCOUNT = "aws-node"
SYSTEM_DISK_GIB = 40
_ADDONS_BEFORE_NODES: Mapping[str, str | None] = {
    "eks-pod-identity-agent": None,
    "kube-proxy": None,
    # Without it nothing enforces a NetworkPolicy.
    "vpc-cni": json.dumps({"enableNetworkPolicy": "true"}),
}


class EksClusterArgs(TypedDict):
    """Inputs of EksCluster. `subnet_ids` are in at least two zones. `service_cidr` must not overlap the VPC's.
    `api_cidrs` are external ranges that may call the API; by default only the VPC may. `kms_key_arn` encrypts
    Kubernetes' secrets, logs and disks. `log_days` is the retention of the control plane's logs. Two
    `system_machine_type` machines (t3.large) run the queue, the autoscaler and DNS.
    """

    stack: str
    version: str
    region: str
    subnet_ids: pulumi.Input[list[str]]
    service_cidr: str
    api_cidrs: NotRequired[list[str]]
    kms_key_arn: NotRequired[pulumi.Input[str] | None]
    log_days: int
    system_machine_type: NotRequired[str]
    tags: dict[str, str]


def kubeconfig(join: JoinSpec, region: str) -> str:
    """For kubectl, Helm and Pulumi, which log in with AWS's command line tool; it contains no secret."""
    cluster = {"server": join.endpoint, "certificate-authority-data": join.certificate_authority}
    words = ["--region", region, "eks", "get-token", "--cluster-name", join.cluster, "--output", "json"]
    login = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "aws",
        "args": words,
        "interactiveMode": "Never",
    }
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": join.cluster,
            "clusters": [{"name": join.cluster, "cluster": cluster}],
            "contexts": [{"name": join.cluster, "context": {"cluster": join.cluster, "user": join.cluster}}],
            "users": [{"name": join.cluster, "user": {"exec": login}}],
        }
    )


class EksCluster(pulumi.ComponentResource):
    """A cluster without machines for jobs. `kubeconfig` waits for the system pods' needs."""

    name: pulumi.Output[str]
    endpoint: pulumi.Output[str]
    certificate_authority: pulumi.Output[str]
    kubeconfig: pulumi.Output[str]
    security_group_id: pulumi.Output[str]
    instance_profile_arn: pulumi.Output[str]

    def __init__(self, name: str, args: EksClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:EksCluster", name, None, opts)
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        cluster = self._cluster()
        role, role_arn = self._machine_role()
        # EKS admits machines of managed groups by itself; those of an Auto Scaling group need this.
        entry = eks.AccessEntry(
            name,
            cluster_name=cluster.name,
            principal_arn=role_arn,
            type="EC2_LINUX",
            tags=args["tags"],
            opts=self._child,
        )
        addons = [self._addon(cluster, addon, values) for addon, values in _ADDONS_BEFORE_NODES.items()]
        system = self._system_nodes(cluster, role_arn, addons)
        last = pulumi.ResourceOptions(parent=self, depends_on=[system])
        ready = [self._autoscaler(cluster), self._addon(cluster, "coredns", None, last)]
        self.name = cluster.name
        self.endpoint = cluster.endpoint
        self.certificate_authority = cluster.certificate_authority.apply(lambda found: str(found.data))
        self.security_group_id = cluster.vpc_config.apply(lambda found: str(found.cluster_security_group_id))
        profile = iam.InstanceProfile(f"{name}-machine", role=role.name, tags=args["tags"], opts=self._child)
        self.instance_profile_arn = after(after(profile.arn, role_arn), entry, *addons)
        self.kubeconfig = after(self.join().apply(lambda join: kubeconfig(join, args["region"])), system, *ready)
        register_outputs(self)

    def join(self) -> pulumi.Output[JoinSpec]:
        """What a machine needs to join."""
        known = pulumi.Output.all(self.name, self.endpoint, self.certificate_authority)
        return known.apply(lambda found: JoinSpec(found[0], found[1], found[2], self._args["service_cidr"]))

    def _cluster(self) -> eks.Cluster:
        args, key = self._args, self._args.get("kms_key_arn")
        # EKS would create one without expiry.
        logs = cloudwatch.LogGroup(
            f"{self._name}-control-plane",
            name=f"/aws/eks/{self._name}/cluster",
            retention_in_days=args["log_days"],
            kms_key_id=key,
            tags=args["tags"],
            opts=self._child,
        )
        encrypted = None if key is None else eks.ClusterEncryptionConfigArgs(
            provider=eks.ClusterEncryptionConfigProviderArgs(key_arn=key), resources=["secrets"]
        )  # fmt: skip
        return eks.Cluster(
            self._name,
            name=self._name,
            version=args["version"],
            role_arn=self._role(f"{self._name}-control-plane", trust("eks.amazonaws.com"), [CLUSTER_POLICY])[1],
            vpc_config=self._vpc_config(),
            kubernetes_network_config=eks.ClusterKubernetesNetworkConfigArgs(service_ipv4_cidr=args["service_cidr"]),
            # Access entries, which IAM and CloudTrail see, instead of a map in which one typo locks everybody out.
            access_config=eks.ClusterAccessConfigArgs(
                authentication_mode="API", bootstrap_cluster_creator_admin_permissions=True
            ),
            encryption_config=encrypted,
            enabled_cluster_log_types=list(LOG_KINDS),
            bootstrap_self_managed_addons=False,
            # Upgrade at the end of standard support instead of paying six times as much.
            upgrade_policy=eks.ClusterUpgradePolicyArgs(support_type="STANDARD"),
            tags=args["tags"],
            opts=pulumi.ResourceOptions(parent=self, depends_on=[logs]),
        )

    def _role(
        self, name: str, trusted: pulumi.Input[dict[str, Any]], policies: Sequence[str]
    ) -> tuple[iam.Role, pulumi.Output[str]]:
        trust_policy = pulumi.Output.json_dumps(trusted)
        role = iam.Role(name, assume_role_policy=trust_policy, tags=self._args["tags"], opts=self._child)
        attached = [
            iam.RolePolicyAttachment(
                f"{name}-{policy}",
                role=role.name,
                policy_arn=pulumi.Output.concat("arn:", role.arn.apply(get_partition), f":iam::aws:policy/{policy}"),
                opts=self._child,
            )
            for policy in policies
        ]
        return role, after(role.arn, *attached)

    def _machine_role(self) -> tuple[iam.Role, pulumi.Output[str]]:
        """Role of system nodes and workers, and its ARN, which waits for the permissions."""
        name = f"{self._name}-machine"
        role, arn = self._role(name, trust("ec2.amazonaws.com"), MACHINE_POLICIES)
        policy = pulumi.Output.json_dumps(document([allow("SessionManager", list(SESSION_ACTIONS), "*")]))
        return role, after(arn, iam.RolePolicy(name, role=role.id, policy=policy, opts=self._child))

    def _pod_role(
        self,
        name: str,
        policy: pulumi.Output[dict[str, Any]] | str,
        cluster_arn: pulumi.Output[str],
        account: tuple[str, str],
    ) -> pulumi.Output[str]:
        """ARN of a pod role, which waits for its permissions. `policy`: a document, or AWS's own policy's name."""
        trusted = cluster_arn.apply(lambda arn: pod_trust(arn, account))
        role, arn = self._role(name, trusted, [policy] if isinstance(policy, str) else [])
        if isinstance(policy, str):
            return arn
        return after(arn, iam.RolePolicy(name, role=role.id, policy=pulumi.Output.json_dumps(policy), opts=self._child))

    def _vpc_config(self) -> eks.ClusterVpcConfigArgs:
        outside = self._args.get("api_cidrs") or []
        return eks.ClusterVpcConfigArgs(
            subnet_ids=self._args["subnet_ids"],
            endpoint_private_access=True,
            endpoint_public_access=bool(outside),
            public_access_cidrs=outside or None,
        )

    def _addon(
        self, cluster: eks.Cluster, addon: str, values: str | None, opts: pulumi.ResourceOptions | None = None
    ) -> eks.Addon:
        identities = None
        if addon == "vpc-cni":
            account = (SYSTEM, CNI_ACCOUNT)
            role = self._pod_role(f"{self._name}-network", CNI_POLICY, cluster.arn, account)
            identities = [eks.AddonPodIdentityAssociationArgs(role_arn=role, service_account=CNI_ACCOUNT)]
        return eks.Addon(
            f"{self._name}-{addon}",
            cluster_name=cluster.name,
            addon_name=addon,
            configuration_values=values,
            pod_identity_associations=identities,
            resolve_conflicts_on_create="OVERWRITE",
            resolve_conflicts_on_update="OVERWRITE",
            tags=self._args["tags"],
            opts=opts or self._child,
        )

    def _autoscaler(self, cluster: eks.Cluster) -> eks.PodIdentityAssociation:
        stack, tags = self._args["stack"], self._args["tags"]
        policy = cluster.arn.apply(lambda arn: autoscaler_policy(stack, arn))
        account = (SYSTEM, AUTOSCALER_ACCOUNT)
        return eks.PodIdentityAssociation(
            f"{self._name}-autoscaler",
            cluster_name=cluster.name,
            namespace=account[0],
            service_account=account[1],
            role_arn=self._pod_role(f"{self._name}-autoscaler", policy, cluster.arn, account),
            tags=tags,
            opts=self._child,
        )

    def _system_nodes(
        self, cluster: eks.Cluster, role_arn: pulumi.Output[str], addons: list[eks.Addon]
    ) -> eks.NodeGroup:
        label = f"{self._name}-system"
        template = self._system_template(label)
        return eks.NodeGroup(
            label,
            cluster_name=cluster.name,
            node_role_arn=role_arn,
            subnet_ids=self._args["subnet_ids"],
            ami_type="AL2023_x86_64_STANDARD",
            launch_template=eks.NodeGroupLaunchTemplateArgs(id=template.id, version=template.latest_version.apply(str)),
            scaling_config=eks.NodeGroupScalingConfigArgs(
                min_size=SYSTEM_NODES, desired_size=SYSTEM_NODES, max_size=SYSTEM_NODES + 1
            ),
            update_config=eks.NodeGroupUpdateConfigArgs(max_unavailable=1),
            labels={POOL_LABEL: "system"},
            tags=self._args["tags"],
            # A node without the network add-on is never ready.
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(addons)),
        )

    def _system_template(self, label: str) -> ec2.LaunchTemplate:
        tags = {**self._args["tags"], "Name": label}
        return ec2.LaunchTemplate(
            label,
            instance_type=self._args.get("system_machine_type", SYSTEM_MACHINE),
            update_default_version=True,
            block_device_mappings=[root_volume(ROOT_DEVICE, SYSTEM_DISK_GIB, self._args.get("kms_key_arn"))],
            # Hop limit 1: no pod reaches the machine's own role.
            metadata_options=ec2.LaunchTemplateMetadataOptionsArgs(
                http_endpoint="enabled", http_tokens="required", http_put_response_hop_limit=1
            ),
            tag_specifications=[
                ec2.LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=tags)
                for kind in ("instance", "volume", "network-interface")
            ],
            tags=tags,
            # Other tags create a template version, for which EKS would replace the group's nodes.
            opts=pulumi.ResourceOptions(parent=self, ignore_changes=["tags", "tagSpecifications"]),
        )
