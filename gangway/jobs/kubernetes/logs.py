"""Merges the log lines of several pods by time; pure."""

import re
from datetime import UTC, datetime

_ZONE = rb"(?:Z|[+-]\d\d:\d\d)"
"""The node's time zone."""
_LINE = re.compile(
    rb"\[pod/[^\]]+\] (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(" + _ZONE + rb") ?(.*)", re.DOTALL
)
_ENDS = re.compile(rb"\n|(?=\[pod/[^\]]+\] \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?" + _ZONE + rb")")
"""Only a newline ends a line, not a progress bar's carriage return; a pod's last line may lack it."""
_ERROR = re.compile(rb"^error: .*|error: .*\(Client\.Timeout or .* while reading body\)$", re.MULTILINE)
_NOTHING_YET = re.compile(rb"is waiting to start|not have a host assigned|not found|not find the requested resource")
_AGREEMENT_NS = 2 * 10**9
"""By which nodes' clocks may differ: newer lines of running pods wait for the next call."""


def since(offset_ns: int) -> list[str]:
    """Arguments for kubectl, in whole seconds."""
    if not offset_ns:
        return []
    return [f"--since-time={datetime.fromtimestamp(offset_ns // 10**9, UTC):%Y-%m-%dT%H:%M:%SZ}"]


def find_error(output: bytes) -> str:
    """Why the log of a pod may be incomplete (kubectl continues with the next pod); empty if it is complete."""
    found = (each[0] for each in _ERROR.finditer(output) if not _NOTHING_YET.search(each[0]))
    return next(found, b"").decode(errors="replace")


def read(output: bytes, offset_ns: int, now_ns: int | None) -> tuple[str, int]:
    """Text after the offset, and the time of its last line. `now_ns`: while pods run, since slightly older lines of
    another pod may still come.
    """
    lines = list[tuple[int, str]]()
    for each in _ENDS.split(output):
        if found := _LINE.fullmatch(each):
            at = _ns(f"{found[1].decode()}{found[3].decode()}", (found[2] or b"").decode())
            lines.append((at, found[4].decode(errors="replace")))
    until = None if now_ns is None else now_ns - _AGREEMENT_NS
    new = sorted(
        (each for each in lines if each[0] > offset_ns and (until is None or each[0] <= until)),
        key=lambda each: each[0],
    )
    return "".join(f"{text}\n" for _, text in new), new[-1][0] if new else offset_ns


def _ns(second: str, fraction: str) -> int:
    at = int(datetime.fromisoformat(second).timestamp())
    return at * 10**9 + int(fraction.ljust(9, "0"))
