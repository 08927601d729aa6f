"""Checks the packages in the lock files against OSV (osv.dev), and fails on vulnerabilities that are not accepted.

    python -m gangway.images.audit_locks [LOCK...]

Each line of audit-accepted.txt accepts one: its id or an alias, and a reason. Exit codes: 0 nothing new, 1 new
vulnerabilities, 2 not checked. Unlike pip-audit, which exits with 0 when OSV does not answer. Tests set
GANGWAY_OSV_URL.
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

ROOT = Path(__file__).resolve().parent.parent
LOCKS = (
    "requirements.lock",
    "stacks/locks/tools.lock",
    *(f"images/locks/{name}.lock" for name in ("trainer", "xla", "sbom")),
)
ACCEPTED = Path(__file__).parent / "audit-accepted.txt"
TIMEOUT_SEC = 30
# OSV accepts 1000 queries per request.
_BATCH_SIZE = 500
_MAX_PAGES = 20
_PIN = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==(?P<version>[^\s;\\]+)", re.MULTILINE)


class Package(NamedTuple):
    """A pinned package on PyPI."""

    name: str
    version: str


class Vulnerability(NamedTuple):
    """`names`: the id and its aliases."""

    id: str
    names: frozenset[str]
    summary: str


def get_packages(locks: Iterable[Path]) -> dict[Package, list[str]]:
    """The locks that pin each package. Raises ValueError for a lock without pins."""
    found: dict[Package, list[str]] = {}
    for lock in locks:
        pins = [Package(pin["name"].lower(), pin["version"]) for pin in _PIN.finditer(lock.read_text("utf-8"))]
        if not pins:
            raise ValueError(f"{lock}: no pins; allowed: lines NAME==VERSION; fix: pass a lock file")
        for package in pins:
            found.setdefault(package, []).append(lock.name)
    return found


def read_accepted(path: Path = ACCEPTED) -> dict[str, str]:
    """Reasons by id. Raises ValueError for a line without a reason."""
    reasons = {}
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        if line and not line.startswith("#"):
            name, _, reason = line.partition(" ")
            if not reason.strip():
                raise ValueError(f"{path}:{number}: {line!r}; allowed: ID REASON; fix: add the reason")
            reasons[name] = reason.strip()
    return reasons


def fetch_ids(packages: Sequence[Package]) -> dict[Package, list[str]]:
    """The ids of the vulnerabilities of each package that has any."""
    found: dict[Package, list[str]] = {}
    for start in range(0, len(packages), _BATCH_SIZE):
        pending = [(package, "") for package in packages[start : start + _BATCH_SIZE]]
        for _ in range(_MAX_PAGES):
            results = _request("/v1/querybatch", {"queries": [_query(*one) for one in pending]})["results"]
            if len(results) != len(pending):
                raise ValueError(f"OSV returned {len(results)} results for {len(pending)} queries")
            next_pages = []
            for (package, _token), result in zip(pending, results, strict=True):
                found.setdefault(package, []).extend(str(one["id"]) for one in result.get("vulns", ()))
                if result.get("next_page_token"):
                    next_pages.append((package, result["next_page_token"]))
            pending = next_pages
            if not pending:
                break
        else:
            raise ValueError(f"OSV returned more than {_MAX_PAGES} pages")
    return {package: ids for package, ids in found.items() if ids}


def _query(package: Package, token: str) -> dict[str, Any]:
    query = {"package": {"name": package.name, "ecosystem": "PyPI"}, "version": package.version}
    return {**query, "page_token": token} if token else query


def fetch_vulnerability(name: str) -> Vulnerability | None:
    """The vulnerability with this id; None if it was withdrawn."""
    answer = _request(f"/v1/vulns/{quote(name, safe='')}")
    if answer.get("withdrawn"):
        return None
    summary = str(answer.get("summary") or answer.get("details") or "no summary").strip().splitlines()[0]
    return Vulnerability(name, frozenset({name, *answer.get("aliases", ())}), summary[:200])


def _request(path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    url = os.environ.get("GANGWAY_OSV_URL", "https://api.osv.dev") + path
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_SEC) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def findings(packages: Mapping[Package, Sequence[str]], reasons: Mapping[str, str]) -> Iterator[tuple[bool, str, str]]:
    """For each vulnerable package: whether it is accepted, by which id or alias, and a line to print."""
    known: dict[str, Vulnerability | None] = {}
    for package, ids in sorted(fetch_ids(sorted(packages)).items()):
        reported: set[str] = set()
        for name in ids:
            found = known[name] if name in known else known.setdefault(name, fetch_vulnerability(name))
            # OSV lists one vulnerability under several ids.
            if found is None or found.names & reported:
                continue
            reported |= found.names
            by = next(iter(sorted(found.names & set(reasons))), "")
            line = f"{package.name} {package.version} ({', '.join(packages[package])}): {name}: {found.summary}"
            yield bool(by), by, f"{line}: accepted: {reasons[by]}" if by else line


def main(argv: Sequence[str], path: Path = ACCEPTED) -> int:
    """Checks the locks."""
    try:
        reasons = read_accepted(path)
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
        print(f"{path.name}: {name} is no longer reported; fix: remove its line", file=sys.stderr)
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
