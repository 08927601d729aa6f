"""Every value that a template puts somewhere is quoted for that place, or is known here to be our own."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from jinja2 import nodes

import gangway.images
from gangway.images.gcp import TpuHostSpec, render_tpu_startup
from gangway.images.render import NodeFile, check_heredoc, template_environment

TEMPLATES = Path(gangway.images.__file__).parent / "templates"
NAMES = sorted(str(path.relative_to(TEMPLATES)) for path in TEMPLATES.rglob("*.j2"))
QUOTED = {"tojson"}
"""Filters after which a value is one scalar of YAML, or of Dockerfile's JSON."""
# Numbers, and what no stack file says: paths, modes and names of our own files and units. A file's text stands in a
# block of YAML, or between two marks of bash, and is looked at before (`gangway.images.render`).
OURS: Mapping[str, set[str]] = {
    "Dockerfile.j2": {"base", "spec", "uid"},
    "cloud-init.yaml.j2": {"file", "lead", "margin", "packages", "units", "what"},
    "machine-image.sh.j2": {"container", "file", "no_upgrades", "step"},
    "tpu-startup.sh.j2": {"file", "units", "what"},
    "prometheus.yml.j2": {"job", "port", "scrape_interval_sec"},
    "prometheus-azure.yml.j2": {"job", "port", "scrape_interval_sec"},
    "prometheus-gce.yml.j2": {"job", "port", "scrape_interval_sec"},
    "prometheus-static.yml.j2": {"job", "scrape_interval_sec"},
}


def raw_names(name: str, text: str | None = None) -> Iterator[str]:
    """The names whose values a template puts out without one of these filters last."""
    source = (TEMPLATES / name).read_text("utf-8") if text is None else text
    for output in template_environment().parse(source).find_all(nodes.Output):
        for node in output.nodes:
            if isinstance(node, nodes.TemplateData) or (isinstance(node, nodes.Filter) and node.name in QUOTED):
                continue
            yield from {found.name for found in node.find_all(nodes.Name)} | (
                {node.name} if isinstance(node, nodes.Name) else set()
            )


def is_unit(name: str) -> bool:
    return name.removesuffix(".j2").rpartition(".")[2] in ("service", "timer")


def test_the_walk_finds_a_raw_value() -> None:
    assert set(raw_names("x", "a {{ b }} {{ c | tojson }} {{ d | upper }} {% if e %}{{ f.g }}{% endif %}")) == {
        "b", "d", "f",
    }  # fmt: skip
    assert len([name for name in NAMES if is_unit(name)]) > 10


@pytest.mark.parametrize("name", [name for name in NAMES if not is_unit(name)])
def test_no_value_is_raw_but_ours(name: str) -> None:
    """Units are not looked at: what stands in one is quoted whatever its template says
    (`gangway.images.render.unit_text`)."""
    assert set(raw_names(name)) <= OURS[name]


@pytest.mark.parametrize("name", [name for name in NAMES if is_unit(name)])
def test_no_unit_joins_words_by_itself(name: str) -> None:
    """A text with spaces is one word there; several words are a list."""
    text = (TEMPLATES / name).read_text("utf-8")
    assert "join(" not in text
    assert "~" not in text


def test_no_text_ends_the_block_it_stands_in(tpu_host: TpuHostSpec) -> None:
    text, mark = render_tpu_startup(tpu_host), "GANGWAY_END_OF_FILE"
    assert text.splitlines().count(mark) == text.count(f"<<'{mark}'") > 10
    for hostile in ("MARK", "a\nMARK\nb", "MARK\n"):
        with pytest.raises(AssertionError):
            check_heredoc([NodeFile("/x", "0644", hostile)], "MARK")
    check_heredoc([NodeFile("/x", "0644", "a MARK\n MARK\n")], "MARK")


GOLDEN = Path(__file__).parent / "golden"


def test_no_stored_content_is_unused(golden_documents: ModuleType) -> None:
    assert golden_documents.unused(GOLDEN) == set()


@pytest.mark.parametrize("machine", ["node", "gcp_node", "tpu_host"])
def test_a_change_of_any_line_changes_what_is_stored(
    golden_documents: ModuleType, machines: Any, machine: str, request: pytest.FixtureRequest
) -> None:
    text: str = machines.rendered(request.getfixturevalue(machine))
    stored = golden_documents.fold(text)
    lines = text.splitlines(keepends=True)
    for at in range(0, len(lines), 37):
        changed = "".join([*lines[:at], lines[at].replace("\n", "#\n"), *lines[at + 1 :]])
        assert golden_documents.fold(changed) != stored, lines[at]
