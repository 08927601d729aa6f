"""Setting the image in a stack file leaves everything else as it is."""

from pathlib import Path

import pytest
import yaml

from gangway.components.core.findings import InputError
from gangway.live.image_build.stack_file import set_prebuilt, write_prebuilt

IMAGE = f"r.example/x@sha256:{'0' * 64}"


@pytest.mark.parametrize(
    "section",
    [
        "",
        "  gangway:image: {prebuilt: old}  # why\n",
        "  gangway:image:\n    # why\n    prebuilt: 'old'\n",
        "  gangway:image:\n    signature: {identity: a}\n",
    ],
)
def test_only_the_image_changes(section: str) -> None:
    text = f"# top\nconfig:\n  # region\n  gangway:region: us-east-2  # here\n{section}"
    changed = set_prebuilt(text, IMAGE)
    assert changed is not None
    assert yaml.safe_load(changed)["config"]["gangway:image"]["prebuilt"] == IMAGE
    comments = [line.partition("#")[2] for line in text.splitlines() if "#" in line]
    assert all(f"#{comment}" in changed for comment in comments)


@pytest.mark.parametrize("text", ["config: {a: 1}\n", "x: 1\n", "config:\n  gangway:image: {signature: {a: b}}\n"])
def test_a_form_that_it_cannot_change_is_refused_and_kept(text: str, tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.x.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match="nothing was written"):
        write_prebuilt(path, IMAGE)
    assert path.read_text() == text


def test_the_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.x.yaml"
    path.write_text("config:\n  gangway:region: x\n")
    write_prebuilt(path, IMAGE)
    assert IMAGE in path.read_text()
    assert list(tmp_path.iterdir()) == [path]
