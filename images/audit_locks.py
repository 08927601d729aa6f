"""Asks OSV (osv.dev) for known vulnerabilities of every package in the locks, and refuses those that nobody accepted.

    python -m images.audit_locks [LOCK...]

audit-accepted.txt beside this file has a line for each that may stay: its id or an alias, and why. Exit code 0: none is
new; 1: some are; 2: nothing was checked. Not pip-audit, which calls what it could not ask about clean (exit code 0).
GANGWAY_OSV_URL, for tests, stands in for https://api.osv.dev.
"""

import json
import os
import re
import sys
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

ROOT = Path(__file__).parent.parent
LOCKS = (
    "requirements.lock",
    "stacks/locks/tools.lock",
    *(f"images/locks/{name}.lock" for name in ("trainer", "xla", "sbom")),
)
ACCEPTED = Path(__file__).parent / "audit-accepted.txt"
TIMEOUT_SEC = 30
# OSV takes a thousand questions at once.
_AT_ONCE = 500
_MOST_PAGES = 20
_PIN = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==(?P<version>[^\s;\\]+)", re.MULTILINE)


class Package(NamedTuple):
    """Of PyPI, as a lock has it."""

    name: str
    version: str


class Vulnerability(NamedTuple):
    """As OSV knows it. `names`: its id and its aliases."""

    id: str
    names: frozenset[str]
    summary: str


def get_packages(locks: Iterable[Path]) -> dict[Package, list[str]]:
    """The locks that have each package. Raises ValueError for one that has none: it is no lock."""
    found: dict[Package, list[str]] = {}
    for lock in locks:
        pins = [Package(pin["name"].lower(), pin["version"]) for pin in _PIN.finditer(lock.read_text("utf-8"))]
        if not pins:
            raise ValueError(f"{lock}: no name==version in it")
        for package in pins:
            found.setdefault(package, []).append(lock.name)
    return found


def accepted(path: Path = ACCEPTED) -> dict[str, str]:
    """Reasons by ids. Raises ValueError for a line without one."""
    reasons = {}
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        if line and not line.startswith("#"):
            name, _, reason = line.partition(" ")
            if not reason.strip():
                raise ValueError(f"{path}:{number}: {line!r}; allowed: an id and a reason; fix: write why it may stay")
            reasons[name] = reason.strip()
    return reasons


def get_ids(packages: Sequence[Package]) -> dict[Package, list[str]]:
    """What OSV has on packages that it has something on."""
    found: dict[Package, list[str]] = {}
    for start in range(0, len(packages), _AT_ONCE):
        asked = [(package, "") for package in packages[start : start + _AT_ONCE]]
        for _ in range(_MOST_PAGES):
            answers = _ask("/v1/querybatch", {"queries": [_question(*one) for one in asked]})["results"]
            if len(answers) != len(asked):
                raise ValueError(f"OSV answers {len(answers)} of {len(asked)} questions")
            for (package, _token), answer in zip(asked, answers, strict=True):
                for vulnerability in answer.get("vulns", ()):
                    found.setdefault(package, []).append(str(vulnerability["id"]))
            asked = [
                (package, answer["next_page_token"])
                for (package, _token), answer in zip(asked, answers, strict=True)
                if answer.get("next_page_token")
            ]
            if not asked:
                break
        else:
            raise ValueError("OSV's answer has no end")
    return found


def _question(package: Package, token: str) -> dict[str, Any]:
    asked = {"package": {"name": package.name, "ecosystem": "PyPI"}, "version": package.version}
    return {**asked, "page_token": token} if token else asked


def vulnerability(name: str) -> Vulnerability | None:
    """By its id; None for one that was withdrawn."""
    told = _ask(f"/v1/vulns/{quote(name, safe='')}")
    if told.get("withdrawn"):
        return None
    summary = str(told.get("summary") or told.get("details") or "OSV says nothing more").strip().splitlines()[0]
    return Vulnerability(name, frozenset({name, *told.get("aliases", ())}), summary[:200])


def _ask(path: str, question: Mapping[str, Any] | None = None) -> dict[str, Any]:
    body = None if question is None else json.dumps(question).encode()
    url = os.environ.get("GANGWAY_OSV_URL", "https://api.osv.dev") + path
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_SEC) as answer:
        told: dict[str, Any] = json.load(answer)
    return told


def findings(packages: Mapping[Package, Sequence[str]], reasons: Mapping[str, str]) -> Iterator[tuple[bool, str, str]]:
    """Of each package and vulnerability: whether it was accepted, by which name, and a line for people."""
    known: dict[str, Vulnerability | None] = {}
    for package, ids in sorted(get_ids(sorted(packages)).items()):
        told: set[str] = set()
        for name in ids:
            found = known[name] if name in known else known.setdefault(name, vulnerability(name))
            # OSV has one thing under several names, each of which it tells.
            if found is None or found.names & told:
                continue
            told |= found.names
            by = next(iter(sorted(found.names & set(reasons))), "")
            line = f"{package.name} {package.version} ({', '.join(packages[package])}): {name}: {found.summary}"
            yield bool(by), by, f"{line}: accepted: {reasons[by]}" if by else line


def main(argv: Sequence[str], path: Path = ACCEPTED) -> int:
    """Prints what was found."""
    try:
        reasons = accepted(path)
        packages = get_packages([Path(word) for word in argv] or [ROOT / name for name in LOCKS])
        found = list(findings(packages, reasons))
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"error: nothing was checked: {error!r}", file=sys.stderr)
        return 2
    for _, _, line in found:
        print(line)
    new = sum(not was_accepted for was_accepted, _, _ in found)
    print(f"{len(packages)} packages: {new} new, {len(found) - new} accepted")
    for name in sorted(set(reasons) - {by for _, by, _ in found}):
        print(f"{path.name}: {name} is found no more: take the line out", file=sys.stderr)
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
