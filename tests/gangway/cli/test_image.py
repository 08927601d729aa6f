"""`gangway dockerfile`: what `up` would build, and how to do it by hand."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gangway.cli import main as cli
from gangway.images.specs import DOCKERFILE_FLAVOURS, Flavour
from gangway.stacks.config.paths import ROOT
from gangway.stacks.estimates.run_context import content_tag, dockerfile_for


@pytest.mark.parametrize("flavour", DOCKERFILE_FLAVOURS)
def test_it_is_what_up_builds(flavour: Flavour) -> None:
    done = CliRunner().invoke(cli.app, ["dockerfile", flavour, "--repository", "registry.example/g"])
    assert done.exit_code == 0
    text = dockerfile_for(flavour)
    assert done.stdout == text, "the proposal is no part of the file"
    build = next(line for line in done.stderr.splitlines() if "buildx build" in line).split()
    assert build[build.index("--tag") + 1] == f"registry.example/g:{content_tag(text)}"
    assert Path(build[-1]).samefile(ROOT), "what the Dockerfile copies is below it"
    assert "gangway:image: {prebuilt: registry.example/g@sha256:...}" in done.stderr


def test_an_image_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["gangway", "dockerfile", "cude"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2
    told = capsys.readouterr().err
    assert "cpu, cuda, cuda-efa, xla" in told
    assert "did you mean 'cuda'?" in told
