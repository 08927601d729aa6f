"""Checks of existing resources on Azure: one line for each setting, with the facts and rules of `up`."""

from collections.abc import Iterator, Mapping
from threading import Lock
from typing import Any

from gangway.live.preflight.check import Check, NoAnswerError, Result
from gangway.live.preflight.existing import existing_check, judge
from gangway.live.preflight.rest import Rest
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.azure.existing import problems
from gangway.stacks.providers.azure.existing_facts import Facts, read_facts
from gangway.stacks.providers.azure.existing_settings import PLACE, resource_name
from gangway.stacks.providers.azure.plan import AzurePlan
from gangway.stacks.providers.azure.settings import get_existing

HOST = "management.azure.com"
_UNREADABLE = frozenset({"403", "404"})
_ADDRESSES = ("head_private_ip", "key.key_url")


def existing_checks(config: StackConfig, planned: AzurePlan, rest: Rest) -> Iterator[Check]:
    """One per existing resource; none without."""
    reader = _Reader(config, rest)
    for name, value in get_existing(config).values.items():
        if value.startswith("/") or name in _ADDRESSES:
            yield _check(config, planned, reader, name, value)


class _Reader:
    """Reads all facts once, for checks in several threads."""

    def __init__(self, config: StackConfig, rest: Rest) -> None:
        self._own, self._rest, self._lock = get_existing(config), rest, Lock()
        self._facts: Facts | None = None

    def _get(self, path: str, api_version: str, query: Mapping[str, str] | None = None, /) -> Any:
        try:
            return self._rest.get(HOST, path.strip("/"), {"api-version": api_version, **(query or {})})
        except NoAnswerError as refusal:
            if refusal.code in _UNREADABLE:
                return None
            raise

    def facts(self) -> Facts:
        """NoAnswerError: a failure that the next check may not meet."""
        with self._lock:
            if self._facts is None:
                self._facts = read_facts(self._own, self._get)
            return self._facts


def _check(config: StackConfig, planned: AzurePlan, reader: _Reader, name: str, value: str) -> Check:
    def run() -> Result:
        facts = reader.facts()
        found = [one for one in problems(config, planned, facts) if one.setting == name]
        if found and all(one.only_new for one in found):
            answer, fix = ("; ".join(texts) for texts in zip(*((one.found, one.fix) for one in found), strict=True))
            return Result.warning(f"{answer}; no problem if this stack is up", fix)
        subnet = facts.subnets.get(name)
        good = facts.text(name, "location") or "fits"
        if subnet is not None:
            good = f"{'unknown number of' if subnet.free is None else subnet.free} free addresses"
        return judge((one.to_error(get_existing(config)) for one in found), good)

    kind = name.removesuffix("_id").replace("_", " ").replace(".", " ")
    return existing_check(f"{PLACE}.{name}", f"existing {kind} {resource_name(value)}", "GET of the resource", run)
