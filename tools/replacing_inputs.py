"""Writes components/catalog/replaces/*.yaml: for each declared resource type the inputs whose change replaces it.

    python -m tools.replacing_inputs --aws GIT_DIR --google GIT_DIR --openstack GIT_DIR --azure GIT_DIR

Run it after an upgrade of a provider. The sources are the providers' own schemas: `ForceNew` and `RequiresReplace` in
the Go sources of terraform-provider-aws (as lonegunmanb/terraform-provider-aws-index has them, a file a function) and
terraform-provider-google-beta, `willReplaceOnChanges` in pulumi-openstack's schema.json and in pulumi-azure-native's
(as danielrbradley/pulumi-azure-native-schema has it, of 2023), and the documentation of inputs in Azure's SDK.
"""

import argparse
import importlib
import json
import re
import subprocess
import sys
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from pulumi._types import input_type_py_to_pulumi_names

from gangway.components.catalog.replaces import FOLDER
from gangway.stacks.base.registry import get_provider
from tools.snapshots import revision, run_git, show

_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|`[^`]*`|[A-Za-z_][\w.]*|[{}()\[\]:,&*=]|\S', re.S)
_RETURNS = re.compile(
    r"^(?:func (\w+)\(.*\) (?:\*schema\.(?:Resource|Schema)|map\[string\]\*schema\.Schema) |"
    r"var (\w+) (?:\*schema\.Schema )?= (?:&schema\.Schema|map\[string\]\*schema\.Schema))\{",
    re.M,
)
_SCHEMA = re.compile(
    r"^func (?:\([^)]*\) )?\w+\(.*\) (?:\*?schema\.\w+|map\[string\]\*?schema\.\w+) \{|"
    r"^func \(.*\) Schema\(.*\) \{|"
    r"^(?:var )?\s*\w+ += (?:sync\.OnceValue\(func\(\) )?&?(?:map\[string\])?\*?schema\.\w+ ?\{",
    re.M,
)
_CONSTANT = "names.Attr"
_KEYS = {
    "routeDestinationCIDRBlock": "destination_cidr_block",
    "routeDestinationIPv6CIDRBlock": "destination_ipv6_cidr_block",
    "routeDestinationPrefixListID": "destination_prefix_list_id",
}
"""Constants of one package."""
_REPLACES = re.compile(r"\w+planmodifier\.RequiresReplace(?:IfConfigured)?")


class GoPackages:
    """The packages of a provider in a git directory."""

    def __init__(self, git: Path) -> None:
        self._repository = git
        self._shared = self._bodies("google-beta/tpgiamresource") | self._bodies("google-beta/tpgresource")

    @cache  # noqa: B019 - one instance for the whole run
    def _bodies(self, folder: str) -> dict[str, list[str]]:
        """Name -> tokens of each function and variable of a folder that holds a schema."""
        found = {}
        for path in run_git(self._repository, "ls-tree", "--name-only", "HEAD", f"{folder}/").split():
            if not path.endswith(".go") or path.endswith("_test.go"):
                continue
            source = run_git(self._repository, "show", f"HEAD:{path}")
            for match in _RETURNS.finditer(source):
                found[match[1] or match[2]] = _block(source[match.end() - 1 :])
        return found

    def force_new(self, resource: str) -> set[str]:
        """The paths of a resource's inputs that force a new one. LookupError: the provider has no such resource."""
        hits = run_git(
            self._repository, "grep", "-l", f'Name: *"{resource}",', "HEAD", "--", "google-beta/services"
        ).split()
        for hit in hits:
            path = hit.removeprefix("HEAD:")
            block = re.search(
                rf'Name: *"{resource}",\s*ProductName: [^\n]*\n'
                r"\s*Type: *registry\.SchemaType(?:IAM)?Resource,\s*Schema: *(.*?),\n",
                run_git(self._repository, "show", hit),
                re.S,
            )
            if block:
                bodies = {**self._shared, **self._bodies(path.rpartition("/")[0])}
                return set(_walk(_tokens(block[1]), bodies, (), frozenset()))
        raise LookupError(resource)


class GoIndex:
    """terraform-provider-aws as its index has it: a file per function, and one per resource, with their names."""

    def __init__(self, git: Path) -> None:
        self._repository = git
        self._shared = {**self._folder("index/internal/tags"), **self._folder("index/internal/framework")}

    def force_new(self, resource: str) -> set[str]:
        """The paths of a resource's inputs that force a new one. LookupError: the provider has no such resource."""
        try:
            entry = json.loads(show(self._repository, f"index/resources/{resource}.json"))
        except subprocess.CalledProcessError:
            raise LookupError(resource) from None
        folder = f"index/{entry['namespace'].partition('/terraform-provider-aws/')[2]}"
        bodies = _Lazy(self, {**self._shared, **self._folder(folder)})
        if entry["sdk_type"] == "aws_framework":
            start = f"{entry['struct_type'] or _EMBEDDED[resource]}.Schema"
        else:  # the index guesses the name of the schema's function; the others are as the code has them
            functions = (entry[f"{verb}_index"].split(".")[1] for verb in ("schema", "create", "read"))
            names = (re.sub("(?:Create|Update|Put|Upsert|Read|Delete)$", "", one) for one in functions)
            start = next((one for one in names if one in bodies), "")
        if start not in bodies:
            raise LookupError(f"{resource}: its schema is not found")
        found = set(_walk(bodies[start], bodies, (), frozenset({start})))
        if "" in found:
            raise ValueError(f"{resource}: an input whose name is a constant; add it to _KEYS")
        return found

    @cache  # noqa: B019 - one instance for the whole run
    def _folder(self, folder: str) -> Mapping[str, str]:
        """Name of a function, variable or method `type.method` -> path."""
        paths = run_git(self._repository, "ls-tree", "--name-only", "HEAD", f"{folder}/").split()
        names = (re.fullmatch(r".*/(?:func|var|method)\.(.+)\.goindex", path) for path in paths)
        return {name[1]: name[0] for name in names if name}

    @cache  # noqa: B019
    def schema(self, path: str) -> list[str]:
        """The tokens of a function or variable that is or makes a schema; empty of any other."""
        source = show(self._repository, path)
        match = _SCHEMA.search(source)
        return _block(source[match.end() - 1 :]) if match else []


_EMBEDDED = {"aws_vpc_security_group_egress_rule": "securityGroupRuleResource"}
"""Whose schema an embedded type has."""


class _Lazy(Mapping[str, list[str]]):
    """Tokens by name, read when they are asked for; of schemas alone."""

    def __init__(self, index: GoIndex, paths: Mapping[str, str]) -> None:
        self._index, self._paths = index, paths

    def __getitem__(self, name: str) -> list[str]:
        if found := self._index.schema(self._paths[name]):
            return found
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


def _tokens(text: str) -> list[str]:
    return [token for token in _TOKEN.findall(text) if not token.startswith(("//", "/*"))]


def _block(text: str) -> list[str]:
    found, depth = [], 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token.startswith(("//", "/*")):
            continue
        found.append(token)
        depth += {"{": 1, "}": -1}.get(token, 0)
        if depth == 0:
            break
    return found


def _walk(
    tokens: list[str], bodies: Mapping[str, list[str]], above: tuple[str, ...], seen: frozenset[str]
) -> Iterator[str]:
    """Yields the paths with `ForceNew: true` or `RequiresReplace()`.

    `#` marks a block of the SDK, of which only presence and number force a new resource. Follows other functions and
    variables of the package.
    """
    frames: list[str] = []
    key, found, blocks = "", list[str](), set[str]()
    for place, token in enumerate(tokens):
        if token == "{":
            frames.append(key)
            key = ""
        elif token == "}":
            frames.pop()
        elif token[0] in '"`' and tokens[place + 1 : place + 2] == [":"]:
            key = token.strip('"')
        elif token.startswith(_CONSTANT) and tokens[place + 1 : place + 2] == [":"]:
            key = _constant_key(token.removeprefix(_CONSTANT))
        elif token in _KEYS and tokens[place + 1 : place + 2] == [":"]:
            key = _KEYS[token]
        elif token == ",":
            key = ""
        inside = ".".join((*above, *(one for one in frames if one)))
        if tokens[place : place + 3] == ["ForceNew", ":", "true"] or _REPLACES.fullmatch(token):
            found.append(inside)
        if tokens[place : place + 2] == ["Elem", ":"] and tokens[place + 3] != "schema.Schema":
            blocks.add(inside)
        name = token.rpartition(".")[2]
        if name in bodies and name not in seen:
            yield from _walk(bodies[name], bodies, (*above, *(one for one in (*frames, key) if one)), seen | {name})
    yield from (f"{path}#" if path in blocks else path for path in found)


def _constant_key(constant: str) -> str:
    """`KMSKeyID` -> `kms_key_id`, as the provider derives its constants the other way round.

    >>> _constant_key("VPCSecurityGroupIDs"), _constant_key("KMSKeyARN"), _constant_key("VPCID")
    ('vpc_security_group_ids', 'kms_key_arn', 'vpc_id')
    """
    words = re.sub(r"(?<=[A-Z])s(?=[A-Z]|$)", "S", constant)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]|IDS?$|ARNS?$)", "_", words).lower()


_WORDS = re.compile(
    r"forces? (?:the )?(?:creation of )?(?:an? )?(?:new|replac|re-?creat)|"
    r"changing (?:this|the) [^.]*(?:creates?|forces?|destroy)[^.]* new|changing this (?:creates|forces)|"
    r"(?:can ?not|can't) be (?:changed|modified|updated)|is immutable|requires? replacement|"
    r"(?:must|can only) be (?:set|specified|enabled) (?:at|during|when) (?:the )?creat",
    re.IGNORECASE,
)
_NOT_WORDS = re.compile(r"some of the settings|is anything other than|block blobs|does not force", re.IGNORECASE)
# Terraform's name of an AWS type, where it is neither aws_MODULE_NAME nor aws_NAME.
_AWS = {"aws:costexplorer:CostAllocationTag": "aws_ce_cost_allocation_tag"}
# Terraform's name of an input -> the SDK's, where Pulumi has another.
_AWS_NAMES = {
    "aws:cloudwatch:MetricAlarm": {"alarm_name": "name"},
    "aws:lambda:Function": {"function_name": "name"},
    "aws:lambda:Permission": {"function_name": "function"},
    "aws:sns:TopicSubscription": {"topic_arn": "topic"},
}
_AZURE_PARAMETERS = re.compile(r"location|scope|resourceUri|relativeRecordSetName|recordType|roleDefinitionId|\w*Name")
_AZURE_NO_PARAMETERS = {"displayName", "roleName", "metricName"}
# Modules that had another name in 2023.
_AZURE_MODULES = {"applicationinsights": "insights", "monitor": "insights", "privatedns": "network"}
# pulumi-azure-native's own list beside `x-ms-mutability`: provider/pkg/gen/replacement.go at _AZURE_LIST_COMMIT, of the
# types that are declared here. A name stands for an input of the resource, or of one of its blocks.
_AZURE_LIST_COMMIT = "1b7112af33c62b247daed1028686bf279f4d5e69"
_AZURE_LIST = {
    "azure-native:authorization:RoleAssignment": ["principalId", "scope"],
    "azure-native:containerservice:AgentPool": ["gpuInstanceProfile", "vmSize", "nodePublicIPTags"],
    "azure-native:containerservice:ManagedCluster": [
        *("diskEncryptionSetID", "dnsPrefix", "fqdnSubdomain", "linuxProfile", "location", "nodeResourceGroup"),
        *("windowsProfile", "serviceCidr", "serviceCidrs", "dnsServiceIP", "networkMode", "networkPlugin"),
        *("networkPluginMode", "podCidr", "networkDataplane", "networkPolicy", "outboundType"),
    ],
    "azure-native:network:PrivateEndpoint": ["subnet"],
    "azure-native:network:PublicIPAddress": ["location", "publicIPAddressVersion", "publicIPPrefix", "sku"],
    "azure-native:network:VirtualNetwork": ["location"],
    "azure-native:resources:ResourceGroup": ["location"],
    "azure-native:storage:StorageAccount": ["isHnsEnabled", "location"],
}


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

    def wire(self, terraform: str, renamed: Mapping[str, str] = MappingProxyType({})) -> str | None:
        """The same with its `#`. `renamed`: whole paths that the SDK calls otherwise."""
        path = terraform.rstrip("#")
        found = self.path(renamed.get(path, path))
        return f"{found}#" if found is not None and terraform.endswith("#") else found

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

    def named(self, name: str) -> Iterator[str]:
        """The wire's path of the input of this name, or without one of those in blocks of the resource."""
        if name in self.names().values():
            yield name
            return
        for python, wire in self.names().items():
            below = self._below(self._args, python)
            if below is not None and name in input_type_py_to_pulumi_names(below).values():
                yield f"{wire}.{name}"

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
    types = {type_ for each in get_provider(provider).retention.classes for type_ in each}
    return sorted(type_ for type_ in types if type_.startswith(f"{package}:"))


def aws(git: Path) -> Mapping[str, list[str]]:
    """From the Go sources of Terraform's provider. Every resource of a region is replaced in another one."""
    index = GoIndex(git)
    table = {}
    for kind in declared("aws"):
        _, module, name = kind.split(":")
        tried = (_AWS.get(kind, f"aws_{module}_{_snake(name)}"), f"aws_{_snake(name)}")
        found = next(paths for one in tried if (paths := _force_new(index, one)) is not None)
        sdk = Sdk(kind)
        known = {wire for path in {*found, "region"} if (wire := sdk.wire(path, _AWS_NAMES.get(kind, {}))) is not None}
        missing = [path for path in found if sdk.wire(path, _AWS_NAMES.get(kind, {})) is None]
        if missing:
            print(f"{kind}: no inputs of the SDK: {', '.join(sorted(missing))}", file=sys.stderr)
        table[kind] = outermost(known)
    return table


def _force_new(index: GoIndex, resource: str) -> set[str] | None:
    try:
        return index.force_new(resource)
    except LookupError:
        return None


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def google(git: Path) -> Mapping[str, list[str]]:
    """From the Go sources of Terraform's provider."""
    packages = GoPackages(git)
    table = {}
    for kind in declared("gcp"):
        sdk, found = Sdk(kind), set()
        for path in packages.force_new(_terraform_name(kind)):
            if (wire := sdk.wire(path.replace("effective_labels", "labels"))) is not None:  # computed from it
                found.add(wire)
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
    return _GOOGLE.get(kind, f"google_{_GOOGLE_MODULES.get(module, module)}_{_snake(name)}")


def openstack(git: Path) -> Mapping[str, list[str]]:
    """From pulumi-openstack's schema."""
    schema = json.loads(show(git, "provider/cmd/pulumi-resource-openstack/schema.json"))
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


def azure(git: Path) -> Mapping[str, list[str]]:
    """What Azure's URLs are made of, pulumi-azure-native's schema and list, and what its documentation says."""
    table = {}
    for kind in declared("azure"):
        sdk = Sdk(kind)
        found = {
            name
            for name in sdk.names().values()
            if _AZURE_PARAMETERS.fullmatch(name) and name not in _AZURE_NO_PARAMETERS
        }
        listed = {path for name in _AZURE_LIST.get(kind, ()) for path in sdk.named(name)}
        blocks = {path.partition(".")[0] for path in listed if "." in path}  # of which that list has the parts
        found |= {name for name in _azure_schema(git, kind) if name in sdk.names().values()} - blocks
        table[kind] = outermost(found | listed | set(sdk.documented()))
    return table


def _azure_schema(git: Path, kind: str) -> Iterator[str]:
    """Inputs with `willReplaceOnChanges`; not those of blocks that the API calls immutable."""
    _, module, name = kind.split(":")
    try:
        text = show(git, f"{_AZURE_MODULES.get(module, module)}/resources/{name}.yaml")
    except subprocess.CalledProcessError:
        print(f"{kind}: not in the schema; the URL, the list and the documentation alone", file=sys.stderr)
        return
    for name, declared_as in yaml.safe_load(text)["inputProperties"].items():
        if declared_as.get("willReplaceOnChanges"):
            yield name


def outermost(paths: typing.Iterable[str]) -> list[str]:
    """Without what lies below another path; `#` behind a path means the presence and number of blocks alone."""
    every = sorted(set(paths))
    return [one for one in every if not any(one.startswith(f"{other}.") for other in every)]


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
    for name in ("aws", "google", "openstack", "azure"):
        parser.add_argument(f"--{name}", type=Path, required=True, metavar="GIT_DIR")
    args = parser.parse_args()
    index = f"terraform-provider-aws as lonegunmanb/terraform-provider-aws-index has it, {revision(args.aws)}"
    write("aws", [f"ForceNew and RequiresReplace in {index}"], aws(args.aws))
    write("gcp", [f"ForceNew in terraform-provider-google-beta, {revision(args.google)}"], google(args.google))
    source = f"willReplaceOnChanges in pulumi-openstack's schema.json, {revision(args.openstack)}"
    write("openstack", [source], openstack(args.openstack))
    sources = [
        "the parameters in the URLs of Azure's REST API",
        f"willReplaceOnChanges in danielrbradley/pulumi-azure-native-schema, {revision(args.azure)}",
        f"forceNewMap in pulumi-azure-native's provider/pkg/gen/replacement.go, {_AZURE_LIST_COMMIT}",
        f"documentation of pulumi-azure-native {version('pulumi-azure-native')}",
    ]
    write("azure", sources, azure(args.azure))


if __name__ == "__main__":
    main()
