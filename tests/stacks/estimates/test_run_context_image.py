"""What the image is built from: the Dockerfile of the flavour, the context, and a tag that follows the content."""

import re
from pathlib import Path

import pytest

import gangway.stacks
from gangway.components.core.image import CONTENT_PREFIX
from gangway.images.specs import DOCKERFILE_FLAVOURS
from gangway.stacks.config.paths import trainer_context
from gangway.stacks.estimates.run_context import content_tag, dockerfile_for

DOCKERFILE = "FROM scratch\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A build context in small."""
    names = (".dockerignore", "trainer/run/loop.py", "trainer/data/packaged_data.py", "images/locks/trainer.lock")
    for name in (*names, "images/render.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


def test_each_flavour_has_its_dockerfile() -> None:
    assert len({dockerfile_for(flavour) for flavour in DOCKERFILE_FLAVOURS}) == len(DOCKERFILE_FLAVOURS)
    assert "efa_installer" in dockerfile_for("cuda-efa")
    assert "efa_installer" not in dockerfile_for("cuda")


def test_the_context_is_the_repository_seen_from_the_programs_folder(repo: Path) -> None:
    context = Path(gangway.stacks.__file__).parent / trainer_context()
    assert context.resolve() == repo
    for source in re.findall(r"^COPY (?!--from)(\S+) ", dockerfile_for("cuda"), re.MULTILINE):
        assert (context / source).is_dir(), source
    assert not Path(trainer_context()).is_absolute(), "the state would name somebody's machine"


def test_equal_content_has_one_tag(root: Path) -> None:
    tag = content_tag(DOCKERFILE, root)
    assert re.fullmatch("content-[0-9a-f]{16}", tag)
    assert tag.startswith(CONTENT_PREFIX), "or the registry would refuse the same content twice"
    (root / "trainer/__pycache__").mkdir()
    (root / "trainer/__pycache__/loop.cpython-311.pyc").write_bytes(b"compiled")
    (root / "images/render.py").write_text("not in the image")
    (root / "images/locks/README.md").write_text("not in the image")
    assert content_tag(DOCKERFILE, root) == tag
    assert content_tag(dockerfile_for("cuda")) == content_tag(dockerfile_for("cuda"))


@pytest.mark.parametrize(
    "name", [".dockerignore", "trainer/run/loop.py", "trainer/data/packaged_data.py", "images/locks/trainer.lock"]
)
def test_whatever_goes_in_changes_the_tag(root: Path, name: str) -> None:
    tag = content_tag(DOCKERFILE, root)
    (root / name).write_text("another content")
    changed = content_tag(DOCKERFILE, root)
    (root / name).rename(root / f"{name}2.lock")
    assert len({tag, changed, content_tag(DOCKERFILE, root), content_tag("FROM other\n", root)}) == 4


def test_where_one_file_ends_and_the_next_begins_matters(root: Path) -> None:
    """Moving bytes from a file's name into it, or from file to file, is another content."""
    tags = set()
    for first, second in (("ab", "c"), ("a", "bc")):
        (root / "trainer/data/packaged_data.py").write_text(first)
        (root / "trainer/run/loop.py").write_text(second)
        tags.add(content_tag(DOCKERFILE, root))
    assert len(tags) == 2
