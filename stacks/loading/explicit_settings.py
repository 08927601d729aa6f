"""Which settings of a stack somebody wrote."""

from collections.abc import Iterator

from stacks.config.stack_config import StackConfig


def written(config: StackConfig, path: str) -> Iterator[str]:
    """The config paths at or below `path` that differ from what is there when nobody writes anything."""
    section, _, name = path.partition(".")
    value = getattr(config, section)
    default = type(config).model_fields[section].get_default()
    if name:
        # A required section has no default to compare with: what it holds beside its own defaults was written.
        own = type(value).model_fields[name].get_default() if value is not None else None
        if value is not None and name in value.model_fields_set and getattr(value, name) != own:
            yield path
    elif value != default:
        yield path
