"""Writes components/catalog/replaces/*.yaml: for each declared resource type the inputs whose change replaces it.

    python -m tools.replacing_inputs --cfn CFN_LINT.whl --google GIT_DIR --openstack GIT_DIR

Run it after an upgrade of a provider. The sources are the providers' own schemas: `ForceNew` in the Go sources of
terraform-provider-google-beta, `willReplaceOnChanges` in pulumi-openstack's schema.json, `createOnlyProperties` in
AWS's CloudFormation schemas (inside the wheel of cfn-lint), and the documentation of inputs in Pulumi's SDKs.
"""

import argparse
import importlib
import json
import re
import subprocess
import sys
import typing
import zipfile
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from pulumi._types import input_type_py_to_pulumi_names

from components.catalog.replaces.table import FOLDER
from stacks.providers.registry import provider_of
from tools.go_schema import GoPackages

_WORDS = re.compile(
    r"forces? (?:the )?(?:creation of )?(?:an? )?(?:new|replac|re-?creat)|"
    r"changing (?:this|the) [^.]*(?:creates?|forces?|destroy)[^.]* new|changing this (?:creates|forces)|"
    r"(?:can ?not|can't) be (?:changed|modified|updated)|is immutable|requires? replacement|"
    r"(?:must|can only) be (?:set|specified|enabled) (?:at|during|when) (?:the )?creat",
    re.IGNORECASE,
)
_NOT_WORDS = re.compile(r"some of the settings|is anything other than|block blobs|does not force", re.IGNORECASE)
# Terraform's name of an AWS type -> CloudFormation's, where lower and upper case are not all that differs.
_CFN = {
    "aws:autoscaling:Group": "AWS::AutoScaling::AutoScalingGroup",
    "aws:autoscaling:Policy": "AWS::AutoScaling::ScalingPolicy",
    "aws:autoscaling:Schedule": "AWS::AutoScaling::ScheduledAction",
    "aws:cloudwatch:LogGroup": "AWS::Logs::LogGroup",
    "aws:cloudwatch:LogMetricFilter": "AWS::Logs::MetricFilter",
    "aws:cloudwatch:MetricAlarm": "AWS::CloudWatch::Alarm",
    "aws:ec2:Fleet": "AWS::EC2::EC2Fleet",
    "aws:ec2:RouteTableAssociation": "AWS::EC2::SubnetRouteTableAssociation",
    "aws:ec2:SpotFleetRequest": "AWS::EC2::SpotFleet",
    "aws:fsx:LustreFileSystem": "AWS::FSx::FileSystem",
    "aws:route53:Record": "AWS::Route53::RecordSet",
    "aws:route53:Zone": "AWS::Route53::HostedZone",
    "aws:sns:TopicSubscription": "AWS::SNS::Subscription",
    "aws:route53:ResolverFirewallDomainList": "AWS::Route53Resolver::FirewallDomainList",
    "aws:route53:ResolverFirewallRuleGroup": "AWS::Route53Resolver::FirewallRuleGroup",
    "aws:route53:ResolverFirewallRuleGroupAssociation": "AWS::Route53Resolver::FirewallRuleGroupAssociation",
    "aws:vpc:SecurityGroupEgressRule": "AWS::EC2::SecurityGroupEgress",
    "aws:vpc:SecurityGroupIngressRule": "AWS::EC2::SecurityGroupIngress",
}
# CloudFormation's name of a property -> the SDK's, where it is another.
_CFN_NAMES = {
    "autoScalingGroupName": ("name", "autoscalingGroupName"),
    "imageId": ("ami",),
    "functionName": ("name", "function"),
    "groupDescription": ("description",),
    "groupId": ("securityGroupId",),
    "groupName": ("name", "securityGroups"),
    "keyName": ("keyName",),
    "placementGroupName": ("placementGroup",),
    "privateIpAddress": ("privateIp",),
    "networkInterfaces": ("networkInterfaces", "primaryNetworkInterface"),
    "nodegroupName": ("nodeGroupName",),
    "nodeRole": ("nodeRoleArn",),
    "subnets": ("subnetIds",),
    "topicArn": ("topic", "arn"),
    "alarmName": ("name",),
    "bucketName": ("bucket",),
    "filterName": ("name",),
    "policyName": ("name",),
    "roleName": ("name", "role"),
    "budgetName": ("name",),
    "type": ("fleetType",),
    "launchTemplateName": ("name",),
    "hostedZoneId": ("zoneId",),
    "launchTemplate": ("launchTemplate", "launchTemplateConfigs"),
    "resourceId": ("vpcId",),
    "resourceType": ("vpcId",),
    "deliverLogsPermissionArn": ("iamRoleArn",),
    "encryptionConfiguration": ("encryptionConfigurations",),
}
_AZURE_PARAMETERS = re.compile(r"location|scope|resourceUri|relativeRecordSetName|recordType|roleDefinitionId|\w*Name")
_AZURE_NO_PARAMETERS = {"displayName", "roleName", "metricName"}


class Sdk:
    """The inputs of one type as Pulumi's SDK declares them."""

    def __init__(self, kind: str) -> None:
        package, module, name = kind.split(":")
        self._module = importlib.import_module(
            f"pulumi_{package.replace('-', '_')}.{module}".replace("lambda", "lambda_")
        )
        # `InitArgs` where a nested type has taken the name.
        self._args = getattr(self._module, f"{name}InitArgs", None) or getattr(self._module, f"{name}Args")

    def names(self) -> dict[str, str]:
        """Python's name -> the wire's."""
        return dict(input_type_py_to_pulumi_names(self._args))

    def documented(self) -> Iterator[str]:
        """The inputs of which the documentation says that a change replaces the resource."""
        words = re.findall(r":param [^\n]*?(\w+): (.*?)(?=\n\s*:param |\Z)", self._args.__init__.__doc__ or "", re.S)
        for name, text in words:
            if _WORDS.search(text) and not _NOT_WORDS.search(text) and name in self.names():
                yield self.names()[name]

    def path(self, terraform: str) -> str | None:
        """The wire's path of one of Terraform's (`boot_disk.auto_delete`); None where the SDK has no such input."""
        found, args = [], self._args
        for part in terraform.split("."):
            names = {} if args is None else input_type_py_to_pulumi_names(args)
            python = next(
                (one for one in (part, f"{part}s", f"{part}es", re.sub("y$", "ies", part)) if one in names), None
            )
            if python is None:
                return None
            found.append(names[python])
            args = self._below(args, python)
        return ".".join(found)

    def _below(self, args: Any, python: str) -> Any:
        hint = args.__init__.__annotations__.get(python)
        name = next(
            (part for part in re.findall(r"ForwardRef\('(\w+Args)'\)|'(\w+Args)'", str(hint)) if any(part)), None
        )
        if name is None:
            return None
        inputs = importlib.import_module(f"{self._module.__name__}._inputs")
        return getattr(inputs, next(filter(None, name)), None)


def declared(provider: str) -> list[str]:
    """The types that the provider's components declare, as `package:module:Class`."""
    package = {"azure": "azure-native"}.get(provider, provider)
    types = {type_ for each in provider_of(provider).retention.classes for type_ in each}
    return sorted(type_ for type_ in types if type_.startswith(f"{package}:"))


def aws(wheel: Path) -> Mapping[str, list[str]]:
    """From CloudFormation's schemas."""
    with zipfile.ZipFile(wheel) as files:
        folder = "cfnlint/data/schemas"
        index = json.loads(files.read(f"{folder}/providers/us-east-1.json"))
        lower = {name.lower(): name for name in index}
        table = {}
        for kind in declared("aws"):
            _, module, name = kind.split(":")
            cfn = _CFN.get(kind, lower.get(f"aws::{module}::{name}".lower()))
            sdk, found = Sdk(kind), {"region"}
            names = set(sdk.names().values())
            if cfn is None:
                print(f"{kind}: CloudFormation has no such type; the documentation alone", file=sys.stderr)
            else:
                schema = json.loads(files.read(f"{folder}/resources/{index[cfn]}.json"))
                for pointer in schema.get("createOnlyProperties", ()):
                    found |= set(_sdk_names(pointer, name, names))
            known = {path for path in found if path.partition(".")[0] in names and sdk.path(_snake(path))}
            table[kind] = outermost(known | set(sdk.documented()))
    return table


def _sdk_names(pointer: str, type_name: str, names: set[str]) -> Iterator[str]:
    first, *below = [part[0].lower() + part[1:] for part in pointer.removeprefix("/properties/").split("/")]
    own = type_name[0].lower() + type_name[1:]
    tried = (first, *_CFN_NAMES.get(first, ()), *(("name",) if first in (f"{own}Name", "name") else ()))
    hits = [one for one in tried if one in names]
    if not hits and below:  # a wrapper that Terraform does not have
        hits, below = [one for one in (below[-1], *_CFN_NAMES.get(below[-1], ())) if one in names], []
    if not hits:
        print(f"{type_name}: {pointer} is no input of the SDK", file=sys.stderr)
    yield from (".".join((one, *below)) for one in hits)


def _snake(path: str) -> str:
    return re.sub(r"(?<![.A-Z])(?=[A-Z])", "_", path).lower()


def google(git: Path) -> Mapping[str, list[str]]:
    """From the Go sources of Terraform's provider."""
    packages = GoPackages(git)
    table = {}
    for kind in declared("gcp"):
        sdk, found = Sdk(kind), set()
        for path in packages.force_new(_terraform_name(kind)):
            path = path.replace("effective_labels", "labels")  # computed from it
            if (wire := sdk.path(path.rstrip("#"))) is not None:
                found.add(f"{wire}#" if path.endswith("#") else wire)
        table[kind] = outermost(found)
    return table


_GOOGLE_MODULES = {"serviceaccount": "service_account", "projects": "project", "artifactregistry": "artifact_registry"}
_GOOGLE = {
    "gcp:serviceaccount:Account": "google_service_account",
    "gcp:cloudscheduler:Job": "google_cloud_scheduler_job",
    "gcp:secretmanager:SecretVersion": "google_secret_manager_secret_version",
    "gcp:secretmanager:Secret": "google_secret_manager_secret",
    "gcp:secretmanager:SecretIamMember": "google_secret_manager_secret_iam_member",
    "gcp:servicenetworking:Connection": "google_service_networking_connection",
    "gcp:accesscontextmanager:ServicePerimeter": "google_access_context_manager_service_perimeter",
    "gcp:projects:IAMCustomRole": "google_project_iam_custom_role",
    "gcp:projects:IAMMember": "google_project_iam_member",
    "gcp:serviceaccount:IAMMember": "google_service_account_iam_member",
    "gcp:kms:CryptoKeyIAMMember": "google_kms_crypto_key_iam_member",
    "gcp:storage:BucketIAMMember": "google_storage_bucket_iam_member",
    "gcp:tpu:V2Vm": "google_tpu_v2_vm",
}


def _terraform_name(kind: str) -> str:
    _, module, name = kind.split(":")
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    return _GOOGLE.get(kind, f"google_{_GOOGLE_MODULES.get(module, module)}_{snake}")


def openstack(git: Path) -> Mapping[str, list[str]]:
    """From pulumi-openstack's schema."""
    schema = json.loads(_show(git, "provider/cmd/pulumi-resource-openstack/schema.json"))
    by_kind = {re.sub(r"/[^:]*", "", token): spec for token, spec in schema["resources"].items()}
    return {
        kind: outermost(_will_replace(schema, by_kind[kind]["inputProperties"], "")) for kind in declared("openstack")
    }


def _will_replace(schema: Any, properties: Mapping[str, Any], above: str) -> Iterator[str]:
    for name, spec in properties.items():
        ref = spec.get("$ref") or spec.get("items", {}).get("$ref")
        is_block = bool(ref and ref.startswith("#/types/"))
        if spec.get("willReplaceOnChanges"):
            yield f"{above}{name}#" if is_block else above + name
        if is_block:
            below = schema["types"][ref.removeprefix("#/types/")].get("properties", {})
            yield from _will_replace(schema, below, f"{above}{name}.")


def azure() -> Mapping[str, list[str]]:
    """What Azure's URLs are made of, and what the documentation says. No schema within reach has more."""
    table = {}
    for kind in declared("azure"):
        sdk = Sdk(kind)
        parameters = {
            name
            for name in sdk.names().values()
            if _AZURE_PARAMETERS.fullmatch(name) and name not in _AZURE_NO_PARAMETERS
        }
        table[kind] = outermost(parameters | set(sdk.documented()))
    return table


def outermost(paths: typing.Iterable[str]) -> list[str]:
    """Without what lies below another path; `#` behind a path means the presence and number of blocks alone."""
    every = sorted(set(paths))
    return [one for one in every if not any(one.startswith(f"{other}.") for other in every)]


def _show(git: Path, path: str) -> str:
    return subprocess.run(
        ["git", f"--git-dir={git}", "show", f"HEAD:{path}"], capture_output=True, check=True, text=True
    ).stdout


def _revision(git: Path) -> str:
    command = ["git", f"--git-dir={git}", "log", "-1", "--format=%H of %cs"]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()


def write(name: str, sources: list[str], table: Mapping[str, list[str]]) -> None:
    """Writes one provider's file."""
    head = "# Inputs whose change replaces a resource. Written by tools/replacing_inputs.py; do not edit.\n"
    text = yaml.safe_dump(
        {"sources": sources, "types": dict(table)}, sort_keys=False, width=120, default_flow_style=None
    )
    (FOLDER / f"{name}.yaml").write_text(head + text, "utf-8")
    print(f"{name}: {len(table)} types, {sum(map(len, table.values()))} inputs")


def main() -> None:
    """Reads the sources and writes the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("cfn", "google", "openstack"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    args = parser.parse_args()
    words = "documentation of pulumi-{} {}"
    cfn = f"CloudFormation's createOnlyProperties, {args.cfn.name} (cfn-lint)"
    write("aws", [cfn, words.format("aws", version("pulumi-aws"))], aws(args.cfn))
    write("gcp", [f"ForceNew in terraform-provider-google-beta, {_revision(args.google)}"], google(args.google))
    source = f"willReplaceOnChanges in pulumi-openstack's schema.json, {_revision(args.openstack)}"
    write("openstack", [source], openstack(args.openstack))
    azure_words = words.format("azure-native", version("pulumi-azure-native"))
    write("azure", ["the parameters in the URLs of Azure's REST API", azure_words], azure())


if __name__ == "__main__":
    main()
