"""One tag policy for every resource: team, cost center, stack, run, carbon class; shortened names."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from gangway.components.core.findings import InputError

# AWS takes 50 tags a resource; components add Name to ours.
MAX_TAGS = 49
_AWS_KEY = re.compile(r"(?!aws:)[\w\s.:/=+\-@]{1,128}", re.UNICODE | re.IGNORECASE)
_AWS_VALUE = re.compile(r"[\w\s.:/=+\-@]{0,256}", re.UNICODE)
# Google Cloud takes 64 labels a resource, in any script; ours are ASCII, which every API accepts.
MAX_LABELS = 64
_GCP_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_GCP_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
# Azure takes 50 tags a resource and nearly any name. We use what all resources accept: DNS zones take no space or
# leading digit, storage accounts 128 characters, and other scripts break the metadata service.
MAX_AZURE_TAGS = 50
_AZURE_KEY = re.compile(r"(?!azure|microsoft|windows)[a-z_][a-z0-9_.+=@-]{0,127}", re.IGNORECASE | re.ASCII)
_AZURE_VALUE = re.compile(r"[ -~]{0,256}")
# Nova's API takes these keys, and 128 of them by default ("metadata_items").
MAX_OPENSTACK_ITEMS = 128
_OPENSTACK_KEY = re.compile(r"[a-zA-Z0-9_:. -]{1,255}")
_OPENSTACK_VALUE = re.compile(r"[ -~]{0,255}")
# Containers take any text, but users filter by these labels on a command line.
_HOST_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
_HOST_VALUE = re.compile(r"[ -~]{0,255}")
_ASCII = "; values up to 255 of plain ASCII"


def shortened(name: str, most: int) -> str:
    """`name`, or if it is too long, its beginning and digits of its hash, so that long names stay distinct.

    >>> shortened("a-stack-with-a-very-long-name", 12)
    'a-stack-9fcf'
    """
    if len(name) <= most:
        return name
    return f"{name[: most - 5].rstrip('-')}-{sha256(name.encode()).hexdigest()[:4]}"


def carbon_class(intensity_g_per_kwh: float | None) -> str:
    """`low` (below 150), `medium` (below 400) or `high` grid intensity, gCO2e per kWh; or `unknown`."""
    if intensity_g_per_kwh is None:
        return "unknown"
    return "low" if intensity_g_per_kwh < 150 else "medium" if intensity_g_per_kwh < 400 else "high"


@dataclass(frozen=True)
class TagPolicy:
    """The tags of every taggable resource. `stack`: Pulumi stack name; `run`: run the resource serves, or `shared`;
    `energy_class`: accelerator family, the largest single factor of the energy bill; `carbon_class`: see
    `carbon_class`; `extra`: the user's tags.
    """

    stack: str
    team: str
    cost_center: str
    run: str
    energy_class: str
    carbon_class: str
    extra: Mapping[str, str]

    def aws(self) -> dict[str, str]:
        """AWS tags. InputError: AWS refuses a tag, or Gangway sets it itself."""
        if "Name" in self.extra:
            problem, fix = "Gangway names each resource by this tag itself", "give the tag another name"
            raise InputError("gangway:tags.Name", problem, value=self.extra["Name"], fix=fix)
        tags = {**self.extra, **self._own_tags(":")}
        self._check_number(tags, MAX_TAGS, "AWS takes 50 a resource")
        allowed = "letters, digits, spaces, . : / = + - _ @; keys of 1 to 128, no aws:...; values up to 256"
        return _checked(tags, _AWS_KEY, _AWS_VALUE, allowed, "AWS refuses this tag")

    def gcp(self) -> dict[str, str]:
        """Google Cloud labels: ours lowercased, the user's checked. InputError: refused or reserved."""
        ours = {key: _as_label(value) for key, value in self._own_tags("-").items()}
        # Lowercasing these could merge two teams into one.
        labels = {**self.extra, **ours, "team": self.team, "cost_center": self.cost_center}
        self._check_number(labels, MAX_LABELS, f"Google Cloud takes {MAX_LABELS} a resource")
        allowed = "a to z, 0 to 9, _ and -; keys of 1 to 63 that begin with a letter, values up to 63"
        return _checked(
            labels, _GCP_KEY, _GCP_VALUE, allowed, "Google Cloud refuses this label",
            lambda key, value: f"write {_as_key(key)}: {_as_label(value)!r}",
        )  # fmt: skip

    def azure(self) -> dict[str, str]:
        """Azure tags, whose names must differ by more than case. InputError: refused, or Gangway sets it itself."""
        tags = {**self.extra, **self._own_tags("-")}
        self._check_number(tags, MAX_AZURE_TAGS, f"Azure takes {MAX_AZURE_TAGS} a resource")
        for key, value in tags.items():
            _checked(
                {key: value}, _AZURE_KEY, _AZURE_VALUE,
                "names of 1 to 128 letters, digits and _ . + = @ - that begin with a letter and not with azure, "
                "microsoft or windows; values up to 256, plain ASCII",
                "not every resource of Azure takes this tag",
                lambda _, value: "shorten it to 256 characters"
                if len(value) > 256
                else "remove the characters outside that set, or give the tag another name",
            )  # fmt: skip
            same = [other for other in tags if other != key and other.lower() == key.lower()]
            if key in self.extra and same:
                raise InputError(
                    f"gangway:tags.{key}",
                    f"to Azure this is the same tag as {same[0]!r}",
                    value=value,
                    allowed="names that differ by more than case",
                    fix="give the tag another name",
                )
        return tags

    def openstack(self) -> dict[str, str]:
        """Metadata of OpenStack instances. InputError: Nova refuses an item, or Gangway sets it itself."""
        items = {**self.extra, **self._own_tags(":")}
        self._check_number(items, MAX_OPENSTACK_ITEMS, f"OpenStack takes {MAX_OPENSTACK_ITEMS} an instance")
        return _checked(items, _OPENSTACK_KEY, _OPENSTACK_VALUE, f"letters, digits, spaces and _ : . - in keys{_ASCII}")

    def hosts(self) -> dict[str, str]:
        """Labels of the container on a machine over SSH. InputError: unusable in filters, or Gangway sets it itself."""
        labels = {**self.extra, **self._own_tags(".")}
        return _checked(labels, _HOST_KEY, _HOST_VALUE, f"letters, digits and _ . - in keys{_ASCII}")

    def _own_tags(self, separator: str) -> dict[str, str]:
        own = {
            "team": self.team,
            "cost_center": self.cost_center,
            f"gangway{separator}stack": self.stack,
            f"gangway{separator}run": self.run,
            f"gangway{separator}energy-class": self.energy_class,
            f"gangway{separator}carbon-class": self.carbon_class,
        }
        for key in sorted(own.keys() & self.extra.keys()):
            problem, fix = "Gangway sets this tag itself", "give the tag another name"
            raise InputError(f"gangway:tags.{key}", problem, value=self.extra[key], fix=fix)
        return own

    def _check_number(self, tags: Mapping[str, str], most: int, why: str) -> None:
        if len(tags) > most:
            ours = len(tags) - len(self.extra)
            raise InputError(
                "gangway:tags",
                "too many tags",
                value=len(self.extra),
                allowed=f"{most - ours} besides team and cost_center ({why})",
                fix=f"remove {len(tags) - most}",
            )


def _checked(
    tags: dict[str, str],
    key_form: re.Pattern[str],
    value_form: re.Pattern[str],
    allowed: str,
    problem: str = "not a tag that every machine takes",
    fix: Callable[[str, str], str] = lambda _key, _value: "remove the characters outside that set",
) -> dict[str, str]:
    for key, value in tags.items():
        if not key_form.fullmatch(key) or not value_form.fullmatch(value):
            raise InputError(f"gangway:tags.{key}", problem, value=value, allowed=allowed, fix=fix(key, value))
    return tags


def _as_label(text: str) -> str:
    return re.sub(r"[^a-z0-9_-]+", "-", text.lower())[:63]


def _as_key(text: str) -> str:
    return (re.sub(r"^[^a-z]+", "", _as_label(text)) or "label")[:63]


# Tags for OpenStack services without key-value tags or with their own spelling of keys. Pure.

ROLE_TAG = "gangway:role"  # distinguishes the head from the workers, which have the same tags

# Neutron API, "Tags": 60 characters by default; a comma separates tags in filters.
_MAX_WORD = 60


def tag_words(tags: Mapping[str, str]) -> list[str]:
    """Tags as sorted words, for networks. A long one is cut, with digits of its hash.

    >>> tag_words({"team": "ml", "gangway:stack": "demo"})
    ['gangway:stack=demo', 'team=ml']
    """
    return sorted(shortened(f"{key}={value}".replace(",", ";"), _MAX_WORD) for key, value in tags.items())


def header_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags as metadata of a container, whose keys become HTTP header names: letters, digits and dashes.

    >>> header_tags({"cost_center": "4711", "gangway:stack": "demo"})
    {'cost-center': '4711', 'gangway-stack': 'demo'}
    """
    return {re.sub(r"[^a-zA-Z0-9]+", "-", key).strip("-").lower(): value for key, value in tags.items()}
