"""Reads what forces a new resource out of the Go sources of a Terraform provider, without running Go: `ForceNew` of its
SDK, `RequiresReplace` of its framework.
"""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

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
        self._git = git
        self._shared = self._bodies("google-beta/tpgiamresource") | self._bodies("google-beta/tpgresource")

    def _run(self, *args: str) -> str:
        return subprocess.run(
            ["git", f"--git-dir={self._git}", *args], capture_output=True, check=True, text=True
        ).stdout

    @cache  # noqa: B019 - one instance for the whole run
    def _bodies(self, folder: str) -> dict[str, list[str]]:
        """Name -> tokens of each function and variable of a folder that holds a schema."""
        found = {}
        for path in self._run("ls-tree", "--name-only", "HEAD", f"{folder}/").split():
            if not path.endswith(".go") or path.endswith("_test.go"):
                continue
            source = self._run("show", f"HEAD:{path}")
            for match in _RETURNS.finditer(source):
                found[match[1] or match[2]] = _block(source[match.end() - 1 :])
        return found

    def force_new(self, resource: str) -> set[str]:
        """The paths of a resource's inputs that force a new one. LookupError: the provider has no such resource."""
        hits = self._run("grep", "-l", f'Name: *"{resource}",', "HEAD", "--", "google-beta/services").split()
        for hit in hits:
            path = hit.removeprefix("HEAD:")
            block = re.search(
                rf'Name: *"{resource}",\s*ProductName: [^\n]*\n'
                r"\s*Type: *registry\.SchemaType(?:IAM)?Resource,\s*Schema: *(.*?),\n",
                self._run("show", hit),
                re.S,
            )
            if block:
                bodies = {**self._shared, **self._bodies(path.rpartition("/")[0])}
                return set(_walk(_tokens(block[1]), bodies, (), frozenset()))
        raise LookupError(resource)


class GoIndex:
    """terraform-provider-aws as lonegunmanb/terraform-provider-aws-index has it: a file for each function, and one for
    each resource, with the names of its functions.
    """

    def __init__(self, git: Path) -> None:
        self._git = git
        self._shared = {**self._folder("index/internal/tags"), **self._folder("index/internal/framework")}

    def force_new(self, resource: str) -> set[str]:
        """The paths of a resource's inputs that force a new one. LookupError: the provider has no such resource."""
        try:
            entry = json.loads(self._show(f"index/resources/{resource}.json"))
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
        paths = self._run("ls-tree", "--name-only", "HEAD", f"{folder}/").split()
        names = (re.fullmatch(r".*/(?:func|var|method)\.(.+)\.goindex", path) for path in paths)
        return {name[1]: name[0] for name in names if name}

    @cache  # noqa: B019
    def schema(self, path: str) -> list[str]:
        """The tokens of a function or variable that is or makes a schema; empty of any other."""
        source = self._show(path)
        match = _SCHEMA.search(source)
        return _block(source[match.end() - 1 :]) if match else []

    def _show(self, path: str) -> str:
        return self._run("show", f"HEAD:{path}")

    def _run(self, *args: str) -> str:
        command = ["git", f"--git-dir={self._git}", *args]
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout


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
    """The tokens up to the brace that closes the first one."""
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
            key = _snake(token.removeprefix(_CONSTANT))
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


def _snake(constant: str) -> str:
    """`KMSKeyID` -> `kms_key_id`, as the provider derives its constants the other way round.

    >>> _snake("VPCSecurityGroupIDs"), _snake("KMSKeyARN"), _snake("VPCID")
    ('vpc_security_group_ids', 'kms_key_arn', 'vpc_id')
    """
    words = re.sub(r"(?<=[A-Z])s(?=[A-Z]|$)", "S", constant)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]|IDS?$|ARNS?$)", "_", words).lower()
