"""What several providers' drawn stack files have in common."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from gangway.trainer.config.presets import PRESETS

Settings = dict[str, Any]
DIGEST = "sha256:" + "0a" * 32


def some(
    fixed: Mapping[str, st.SearchStrategy[Any]], **optional: st.SearchStrategy[Any]
) -> st.SearchStrategy[Settings]:
    """Mappings with all keys of `fixed` and any of `optional`."""
    return st.fixed_dictionaries(dict(fixed), optional=optional)


JOB = some(
    {"preset": st.sampled_from(sorted(PRESETS)), "kimg": st.floats(1e-3, 1e6), "max_hours": st.floats(0.01, 672)},
    terminate_when_done=st.booleans(),
)
