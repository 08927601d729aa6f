"""EksCluster: who reaches it, what is encrypted, which rights each part has, and what stands before what."""

import json

from gangway.components.aws.eks import LOG_KINDS, EksCluster, autoscaler_policy, kubeconfig
from gangway.components.aws.eks_nodes import SYSTEM_NODES, JoinSpec
from gangway.components.aws.identity import SESSION_ACTIONS
from tests.components.fixture_types import Make

KEY = "arn:aws:kms:us-east-2:1:key/x"
JOIN = JoinSpec("demo", "https://x.eks.amazonaws.com", "Q0E=", "172.20.0.0/16")


def test_nobody_outside_reaches_it_unless_told(make: Make) -> None:
    vpc = make(EksCluster, api_cidrs=[]).one("Cluster").inputs["vpcConfig"]
    assert (vpc["endpointPrivateAccess"], vpc["endpointPublicAccess"]) == (True, False)
    assert "publicAccessCidrs" not in vpc
    vpc = make(EksCluster).one("Cluster").inputs["vpcConfig"]
    assert (vpc["endpointPublicAccess"], vpc["publicAccessCidrs"]) == (True, ["203.0.113.0/24"])


def test_secrets_logs_and_disks_are_under_the_stacks_key(make: Make) -> None:
    made = make(EksCluster)
    cluster = made.one("Cluster").inputs
    assert cluster["encryptionConfig"] == {"provider": {"keyArn": KEY}, "resources": ["secrets"]}
    assert made.one("LogGroup").inputs["kmsKeyId"] == KEY
    [disk] = made.one("LaunchTemplate").inputs["blockDeviceMappings"]
    assert (disk["ebs"]["kmsKeyId"], disk["ebs"]["encrypted"]) == (KEY, "true")
    assert "encryptionConfig" not in make(EksCluster, kms_key_arn=None).one("Cluster").inputs


def test_the_control_plane_writes_everything_down_for_a_while(make: Make) -> None:
    made = make(EksCluster)
    assert made.one("Cluster").inputs["enabledClusterLogTypes"] == list(LOG_KINDS)
    logs = made.one("LogGroup").inputs
    assert (logs["name"], logs["retentionInDays"]) == ("/aws/eks/demo/cluster", 30)


def test_access_is_by_entries(make: Make) -> None:
    made = make(EksCluster)
    assert made.one("Cluster").inputs["accessConfig"]["authenticationMode"] == "API"
    assert made.one("AccessEntry").inputs["type"] == "EC2_LINUX"


def test_no_pod_has_its_machines_rights(make: Make) -> None:
    made = make(EksCluster)
    assert made.one("LaunchTemplate").inputs["metadataOptions"] == {
        "httpEndpoint": "enabled", "httpTokens": "required", "httpPutResponseHopLimit": 1,
    }  # fmt: skip
    addons = {each.inputs["addonName"]: each.inputs for each in made.of("Addon")}
    assert set(addons) == {"coredns", "eks-pod-identity-agent", "kube-proxy", "vpc-cni"}
    [network] = addons["vpc-cni"]["podIdentityAssociations"]
    assert network["serviceAccount"] == "aws-node"
    assert json.loads(addons["vpc-cni"]["configurationValues"]) == {"enableNetworkPolicy": "true"}
    association = made.one("PodIdentityAssociation").inputs
    assert (association["namespace"], association["serviceAccount"]) == ("kube-system", "cluster-autoscaler")


def test_a_machine_may_join_and_pull_and_be_logged_into(make: Make) -> None:
    made = make(EksCluster)
    attached: dict[str, set[str]] = {}
    for each in made.each("RolePolicyAttachment"):
        attached.setdefault(each.inputs["role"], set()).add(each.inputs["policyArn"].rpartition("/")[2])
    assert sorted(map(sorted, attached.values())) == [
        ["AmazonEC2ContainerRegistryPullOnly", "AmazonEKSWorkerNodePolicy"],
        ["AmazonEKSClusterPolicy"],
        ["AmazonEKS_CNI_Policy"],
    ]
    [own] = [each for each in made.of("RolePolicy") if each.name == "demo-machine"]
    [statement] = json.loads(own.inputs["policy"])["Statement"]
    assert statement["Action"] == list(SESSION_ACTIONS)


def test_the_autoscaler_sets_sizes_of_the_stacks_groups_alone() -> None:
    reads, sizes = autoscaler_policy("demo", "arn:aws-us-gov:eks:us-gov-west-1:1:cluster/demo")["Statement"]
    assert reads["Resource"] == "*"
    for action in reads["Action"]:
        assert action.partition(":")[2].startswith(("Describe", "Get")), action
    assert sizes["Resource"].startswith("arn:aws-us-gov:autoscaling:")
    assert sizes["Condition"] == {"StringEquals": {"autoscaling:ResourceTag/gangway:stack": "demo"}}
    assert {action.partition(":")[2] for action in sizes["Action"]} == {
        "SetDesiredCapacity",
        "TerminateInstanceInAutoScalingGroup",
    }


def test_a_role_of_pods_is_one_service_accounts_of_one_cluster(make: Make) -> None:
    made = make(EksCluster)
    roles = {each.name: json.loads(each.inputs["assumeRolePolicy"])["Statement"] for each in made.of("Role")}
    accounts = {"demo-network": "aws-node", "demo-autoscaler": "cluster-autoscaler"}
    for name, account in accounts.items():
        [statement] = roles[name]
        assert statement["Principal"] == {"Service": "pods.eks.amazonaws.com"}
        assert statement["Condition"] == {
            "StringEquals": {
                "aws:RequestTag/eks-cluster-arn": "${Cluster.demo.arn}",
                "aws:RequestTag/kubernetes-namespace": "kube-system",
                "aws:RequestTag/kubernetes-service-account": account,
            }
        }


def test_the_system_has_its_own_machines(make: Make) -> None:
    made = make(EksCluster)
    group = made.one("NodeGroup").inputs
    assert group["scalingConfig"] == {"minSize": SYSTEM_NODES, "desiredSize": SYSTEM_NODES, "maxSize": SYSTEM_NODES + 1}
    assert group["labels"] == {"gangway.dev/pool": "system"}
    assert made.one("LaunchTemplate").inputs["instanceType"] == "t3.large"
    smaller = make(EksCluster, system_machine_type="t3.medium").one("LaunchTemplate")
    assert smaller.inputs["instanceType"] == "t3.medium"


def test_a_kubeconfig_holds_no_secret_and_logs_in_by_the_clouds_own_tool() -> None:
    config = json.loads(kubeconfig(JOIN, "us-east-2"))
    [user] = config["users"]
    assert set(user["user"]) == {"exec"}
    login = user["user"]["exec"]
    assert [login["command"], *login["args"]] == [
        "aws", "--region", "us-east-2", "eks", "get-token", "--cluster-name", "demo", "--output", "json",
    ]  # fmt: skip
    [cluster] = config["clusters"]
    assert cluster["cluster"] == {"server": JOIN.endpoint, "certificate-authority-data": JOIN.certificate_authority}
    assert config["current-context"] == config["contexts"][0]["name"] == "demo"
