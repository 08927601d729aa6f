"""Reads `ForceNew` out of the Go sources of a Terraform provider, without running Go."""

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|`[^`]*`|[A-Za-z_][\w.]*|[{}()\[\]:,&*=]|\S', re.S)
_RETURNS = re.compile(
    r"^(?:func (\w+)\(.*\) (?:\*schema\.(?:Resource|Schema)|map\[string\]\*schema\.Schema) |"
    r"var (\w+) (?:\*schema\.Schema )?= (?:&schema\.Schema|map\[string\]\*schema\.Schema))\{",
    re.M,
)


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
    tokens: list[str], bodies: dict[str, list[str]], above: tuple[str, ...], seen: frozenset[str]
) -> Iterator[str]:
    """The paths with `ForceNew: true`. `#` marks a block: there only its presence and number force a new resource.
    Follows other functions and variables of the package.
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
        elif token == ",":
            key = ""
        inside = ".".join((*above, *(one for one in frames if one)))
        if tokens[place : place + 3] == ["ForceNew", ":", "true"]:
            found.append(inside)
        if tokens[place : place + 2] == ["Elem", ":"] and tokens[place + 3] != "schema.Schema":
            blocks.add(inside)
        name = token.rpartition(".")[2]
        if name in bodies and name not in seen:
            yield from _walk(bodies[name], bodies, (*above, *(one for one in (*frames, key) if one)), seen | {name})
    yield from (f"{path}#" if path in blocks else path for path in found)
