"""Tags as services of OpenStack take them that know no keys with values, or spell keys their own way. Pure."""

import re
from collections.abc import Mapping

from components.core.tags import shortened

__all__ = ["ROLE_TAG", "header_tags", "tag_words"]

ROLE_TAG = "gangway:role"
"""Tells the head from the workers, which carry the same tags of the stack."""

# Neutron API, "Tags": at first 60 characters; a comma would part two tags where somebody filters by them.
_MAX_WORD = 60


def tag_words(tags: Mapping[str, str]) -> list[str]:
    """Tags as words, for networks; sorted. A long one is cut, and keeps some digits that tell it from others.

    >>> tag_words({"team": "ml", "gangway:stack": "demo"})
    ['gangway:stack=demo', 'team=ml']
    """
    return sorted(shortened(f"{key}={value}".replace(",", ";"), _MAX_WORD) for key, value in tags.items())


def header_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags as metadata of a container, whose keys travel as names of HTTP headers: letters, digits and dashes.

    >>> header_tags({"cost_center": "4711", "gangway:stack": "demo"})
    {'cost-center': '4711', 'gangway-stack': 'demo'}
    """
    return {re.sub(r"[^a-zA-Z0-9]+", "-", key).strip("-").lower(): value for key, value in tags.items()}
