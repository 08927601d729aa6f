"""The templates beside this file, as the pages render them: autoescape on, so that a hostile name stays text."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

__all__ = ["render_template"]

_HERE = Path(__file__).parent


def render_template(name: str, styles: tuple[str, ...], filters: Mapping[str, Any], context: Mapping[str, Any]) -> str:
    """A whole HTML file, in need of nothing else.

    Args:
        name: of the template.
        styles: files of CSS, which become `style` in the template.
        filters: of the template.
        context: its variables.
    """
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(filters)
    style = Markup("\n".join((_HERE / style).read_text("utf-8") for style in styles))  # our own files
    html = environment.get_template(name).render(style=style, **context)
    return f"{html.strip()}\n"
