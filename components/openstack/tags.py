"""Tags for OpenStack services without key-value tags or with their own spelling of keys. Pure."""

import re
from collections.abc import Mapping

from gangway.components.core.tags import shortened

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
