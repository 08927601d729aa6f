"""The archive: only what the Dockerfile copies, and the same bytes wherever and whenever it is packed."""

import os
from pathlib import Path

from gangway.live.image_build.context import pack_context, unpack_context
from gangway.stacks.estimates.run_context import content_tag, dockerfile_for


def tree(root: Path) -> Path:
    for name in (
        ".dockerignore",
        ".git/config",
        ".env",
        "secret.pem",
        "trainer/a.py",
        "trainer/__pycache__/a.pyc",
        "trainer/.env",
        "trainer/.cache/a.py",
        "images/locks/cpu.lock",
        "images/locks/key.pem",
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return root


def test_it_has_what_is_copied_and_nothing_else(tmp_path: Path) -> None:
    context = pack_context("cpu", "r.example/x", tree(tmp_path))
    assert context.files == ["Dockerfile", ".dockerignore", "images/locks/cpu.lock", "trainer/a.py"]
    assert context.image == f"r.example/x:{content_tag(dockerfile_for('cpu'), tmp_path)}"


def test_equal_content_is_the_same_bytes(tmp_path: Path) -> None:
    one, two = tree(tmp_path / "one"), tree(tmp_path / "two")
    os.utime(two / "trainer/a.py", (0, 0))
    (two / "trainer/a.py").chmod(0o600)
    assert pack_context("cpu", "r.example/x", one).archive == pack_context("cpu", "r.example/x", two).archive


def test_a_local_build_gets_the_same_files(tmp_path: Path) -> None:
    context = pack_context("cpu", "r.example/x", tree(tmp_path / "from"))
    unpack_context(context, tmp_path / "to")
    found = sorted(
        path.relative_to(tmp_path / "to").as_posix() for path in (tmp_path / "to").rglob("*") if path.is_file()
    )
    assert found == sorted(context.files)
