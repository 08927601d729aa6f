"""The stand-in for Pulumi's AWS plugin: what its answers look like, and what AWS cannot change on a living resource.

Prefixed ids, ARNs, versions that count up, one function; and what AWS refuses although the SDK takes it. The tables are
`standin.aws_facts`.
"""

import base64
import json
import re
import secrets
import zlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .aws_facts import (
    ARN_PATHS,
    FINDING,
    GLOBAL_SERVICES,
    HELD_BY_USERS,
    ID_INPUTS,
    ID_PREFIXES,
    LOOSE_USERS,
    NEEDED,
    PERMISSION,
    REPLACING_INPUTS,
    SETTINGS,
)
from .service import Look, RefusedError, Service, texts

ACCOUNT = "123456789012"
PASSWORD_PREFIX = "ecr-password-"
"""Every password begins so: a test that searches for it finds those that were never used, too."""

BUCKET = "aws:s3/bucket:Bucket"
MACHINE_IMAGE = "aws:imagebuilder/image:Image"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"

CONTROL_PLANE: Mapping[str, Any] = MappingProxyType(
    {
        "endpoint": "https://0123456789ABCDEF.gr7.us-east-2.eks.amazonaws.com",
        "certificateAuthority": {"data": "Q0E="},
        "vpcConfig": {"clusterSecurityGroupId": "sg-0123456789abcdef0"},
    }
)
"""What EKS tells of a cluster."""


class Aws(Service):
    """One account in one region."""

    sdk = "pulumi_aws"
    replacing = REPLACING_INPUTS
    volatile = frozenset({"latestVersion"})
    held = HELD_BY_USERS
    loose = LOOSE_USERS
    settings = SETTINGS
    parts: Mapping[str, frozenset[str]] = MappingProxyType(
        {BUCKET: frozenset(each for each in SETTINGS if each.startswith("aws:s3/"))}
    )
    stores: Mapping[str, str] = MappingProxyType(
        {"aws:ecr/repository:Repository": "forceDelete", BUCKET: "forceDestroy"}
    )

    def __init__(self) -> None:
        self._region = "us-east-1"

    def configure(self, args: Mapping[str, Any]) -> None:
        """See Service."""
        self._region = args.get("region", self._region)

    def identify(self, type_token: str, name: str, inputs: Mapping[str, Any]) -> str:
        """See Service. An SNS topic is its ARN; a part of another resource is named after that."""
        if prefix := ID_PREFIXES.get(type_token):
            return f"{prefix}-{secrets.token_hex(9)[:17]}"
        if type_token == PERMISSION and "statementId" not in inputs:
            return f"{inputs['function']}/terraform-{secrets.token_hex(13)}"
        if keys := ID_INPUTS.get(type_token):
            return "/".join(str(inputs[key]) for key in keys if key in inputs)
        chosen: str = inputs.get("name") or inputs.get("bucket") or f"{name}-{secrets.token_hex(4)}"
        return self._arn(type_token, chosen) if type_token == "aws:sns/topic:Topic" else chosen

    def computed(
        self, type_token: str, id_: str, inputs: Mapping[str, Any], before: Mapping[str, Any]
    ) -> dict[str, Any]:
        """See Service."""
        if "latestVersion" in before:
            return {**before, "latestVersion": before["latestVersion"] + 1}
        if before:
            return {**before, "tagsAll": inputs.get("tags", {})}
        ami = {"accountId": ACCOUNT, "image": f"ami-{zlib.crc32(id_.encode()):017x}", "region": self._region}
        return {
            **({"outputResources": [{"amis": [ami]}]} if type_token == MACHINE_IMAGE else {}),
            **(CONTROL_PLANE if type_token == "aws:eks/cluster:Cluster" else {}),
            "arn": id_ if id_.startswith("arn:") else self._arn(type_token, id_),
            "dnsName": f"{id_}.{type_token.split(':')[1].partition('/')[0]}.{self._region}.amazonaws.com",
            "keyId": id_,
            "mountName": secrets.token_hex(4),
            "privateIp": f"10.42.0.{4 + secrets.randbelow(200)}",
            "repositoryUrl": f"{ACCOUNT}.dkr.ecr.{self._region}.amazonaws.com/{id_}",
            "latestVersion": 1,
            "region": self._region,
            "tagsAll": inputs.get("tags", {}),
            "zoneId": id_,
        }

    def admit(self, type_token: str, inputs: Mapping[str, Any], look: Look) -> None:
        """See Service."""
        for key, needed in NEEDED.get(type_token, {}).items():
            for id_ in texts([inputs.get(key)]):
                if not look(needed, id_):
                    raise RefusedError(f"{needed.rpartition(':')[2]} {id_}: NotFound")
        match type_token:
            case "aws:ec2/instance:Instance":
                _admit_instance(inputs, look)
            case "aws:ec2/fleet:Fleet" | "aws:ec2/spotFleetRequest:SpotFleetRequest":
                _admit_fleet(inputs, look)
            case "aws:kms/keyPolicy:KeyPolicy":
                _admit_key_policy(inputs, look)

    def ask(self, function: str, args: Mapping[str, Any], look: Look) -> dict[str, Any]:
        """See Service. A new token each time, as ECR gives; not marked as a secret, for the program has to do that."""
        if function == "aws:ssm/getParameter:getParameter":
            image = f"ami-{zlib.crc32(args['name'].encode()):08x}{self.newest():09x}"
            return {"id": args["name"], "name": args["name"], "insecureValue": image, "value": image, "type": "String"}
        if function in FINDING:
            return self._find(function, args)
        if function == "aws:index/getCallerIdentity:getCallerIdentity":
            return {"id": ACCOUNT, "accountId": ACCOUNT, "arn": f"arn:aws:iam::{ACCOUNT}:user/ann", "userId": "AIDA"}
        if function == "aws:vpc/getSecurityGroupRules:getSecurityGroupRules":
            (group,) = args["filters"][0]["values"]
            ids = [one["id"] for one in self.resources_of_type("rule") if one["outputs"]["securityGroupId"] == group]
            return {"id": group, "ids": ids}
        roles = {one["id"]: one["inputs"].get("tags", {}) for one in self.resources_of_type("aws:iam/role:Role")}
        if function == "aws:iam/getRoles:getRoles":
            names = [name for name in roles if re.search(args["nameRegex"], name)]
            return {"id": "roles", "arns": [self._arn("aws:iam/role:Role", name) for name in names], "names": names}
        if function == "aws:kms/getAlias:getAlias":
            aliases = {one["id"]: one["inputs"] for one in self.resources_of_type("aws:kms/alias:Alias")}
            if args["name"] not in aliases:
                raise RefusedError(f"reading KMS Alias ({args['name']}): empty result")
            key = self._arn("aws:kms/key:Key", aliases[args["name"]]["targetKeyId"])
            return {"id": args["name"], "name": args["name"], "targetKeyArn": key}
        if function == "aws:resourcegroupstaggingapi/getResources:getResources":
            keys = {one["outputs"]["arn"]: one["inputs"] for one in self.resources_of_type("aws:kms/key:Key")}
            tagged = {arn: keys[arn].get("tags", {}) for arn in args["resourceArnLists"] if arn in keys}
            mappings = [{"resourceArn": arn, "tags": tags} for arn, tags in tagged.items()]
            return {"id": "resources", "resourceTagMappingLists": mappings}
        if function != "aws:ecr/getAuthorizationToken:getAuthorizationToken":
            raise RefusedError(f"the stand-in for {self.sdk} knows no function {function}")
        password = f"{PASSWORD_PREFIX}{secrets.token_hex(16)}"
        return {
            "authorizationToken": base64.b64encode(f"AWS:{password}".encode()).decode(),
            "expiresAt": "2035-01-01T00:00:00Z",
            "id": self._region,
            "password": password,
            "proxyEndpoint": f"https://{ACCOUNT}.dkr.ecr.{self._region}.amazonaws.com",
            "region": self._region,
            "userName": "AWS",
        }

    def _find(self, function: str, args: Mapping[str, Any]) -> dict[str, Any]:
        type_token, argument = FINDING[function]
        for one in self.resources_of_type(type_token):
            known = {**one["outputs"], "id": one["id"], argument: one["outputs"].get(argument, one["id"])}
            if known[argument] == args.get(argument):
                return {**known, "tags": one["inputs"].get("tags", {})}
        raise RefusedError(f"reading {type_token} ({args.get(argument)}): NotFound: no matching resource")

    def _arn(self, type_token: str, id_: str) -> str:
        service, _, kind = type_token.removeprefix("aws:").partition(":")[0].partition("/")
        place = f"{'' if service in GLOBAL_SERVICES else self._region}:{'' if service == 's3' else ACCOUNT}"
        path = ARN_PATHS.get(type_token, f"{kind}/{{}}").format(id_)
        return f"arn:aws:{'logs' if kind == 'logGroup' else service}:{place}:{path}"


def _image(template: Mapping[str, Any], look: Look) -> str:
    """The AMI of a launch template that is referred to by `{id, ...}` or `{launchTemplateId, ...}`."""
    id_ = template.get("id") or template.get("launchTemplateId") or ""
    return str(look(TEMPLATE, id_).get("imageId", ""))


def _admit_instance(inputs: Mapping[str, Any], look: Look) -> None:
    """The provider looks up the root device of the AMI as it is written (hashicorp/terraform-provider-aws#43488)."""
    image = inputs.get("ami") or _image(inputs.get("launchTemplate", {}), look)
    if "rootBlockDevice" in inputs and image.startswith("resolve:ssm:"):
        raise RefusedError(f'collecting instance settings: InvalidAMIID.Malformed: Invalid id: "{image}"')


def _admit_fleet(inputs: Mapping[str, Any], look: Look) -> None:
    """Only an EC2 Fleet of type instant resolves a reference (EC2's CreateFleet, `ImageId`)."""
    for config in inputs.get("launchTemplateConfigs", ()):
        image = _image(config["launchTemplateSpecification"], look)
        if image.startswith("resolve:ssm:") and inputs.get("type") != "instant":
            raise RefusedError(f'InvalidAMIID.Malformed: Invalid id: "{image}" (expecting "ami-...")')


def _admit_key_policy(inputs: Mapping[str, Any], look: Look) -> None:
    """KMS knows the account itself, services, everybody, and roles that exist; service-linked ones do not at first."""
    for statement in json.loads(inputs["policy"])["Statement"]:
        named = statement["Principal"].get("AWS", [])
        for principal in [named] if isinstance(named, str) else named:
            _, _, role = principal.partition(":role/")
            if role and not look("aws:iam/role:Role", role.rpartition("/")[2]):
                raise RefusedError(f"MalformedPolicyDocumentException: invalid principals: {principal}")
