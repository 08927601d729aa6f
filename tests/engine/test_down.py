"""`gangway down` with the real CLI: it refuses without the name, destroys the stack, and audits what is left."""

import subprocess
import sys
from typing import Any

import pytest

from gangway.stacks.config.paths import module_environment

pytestmark = pytest.mark.engine


def down(engine: Any, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "gangway.cli", "down", engine.stack, *words]
    env = module_environment({**engine.env, "AWS_EC2_METADATA_DISABLED": "true"})
    return subprocess.run(
        argv, env=env, cwd=engine.project, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )


def test_a_stack_is_explained_and_destroyed(make_engine: Any) -> None:
    engine = make_engine("aws-g5-dev")
    engine.applied("up")
    explained = down(engine, "--dry-run")
    assert explained.returncode == 0, explained.stderr
    assert "aws:autoscaling/group:Group" in explained.stdout
    assert len(engine.resources()) > 10
    refused = down(engine)
    assert refused.returncode == 2
    assert "--force" in refused.stderr or "--yes" in refused.stderr
    done = down(engine, "--yes", "--force")
    assert "Resources:" in done.stdout, "Pulumi's own output is passed through"
    assert "what is left is unknown" in done.stderr, "the stand-ins have no API to audit"
    assert done.returncode == 1
    assert not [each for each in engine.resources() if each["type"].startswith("aws:autoscaling")]
