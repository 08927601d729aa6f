"""A node's files with the owners that they have there, its real scripts as root, and a job that is really user 10001:
nothing that it can do shows it a secret of root's, changes what root runs, or has root run something of its own.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gangway.images.aws import AwsNodeSpec

UID = 10001
SECRET = "of-root-alone"
ROOTS = ("node.env", "job.env", "fake", "bin", "state", "secret")
"""What is root's on that node."""
AS_JOB = ("setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--no-new-privs", "bash", "-c")

pytestmark = [
    pytest.mark.attack("a job (uid 10001)", "reads, writes and tricks root on a node with its real owners"),
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="wants root, to become another user"),
]


@pytest.fixture
def tree(node: AwsNodeSpec, imds: Any, aws_scripts: Path, machines: Any) -> Iterator[Any]:
    """Not below pytest's own folder, which nobody else may enter."""
    root = Path(tempfile.mkdtemp(prefix="gangway-node-"))
    root.chmod(0o755)
    for name in ("fake", "state", "put"):
        (root / name).mkdir()
    shutil.copytree(aws_scripts, root / "bin")
    shutil.copytree(aws_scripts.parent / "lib", root / "lib")
    made = machines.Machine(root, node, {"GANGWAY_IMDS_URL": imds.url}, root / "bin")
    made.plan(run_dir=f"{root}/run", breaker=None)
    made.more_settings["TRAINER_UID"] = str(UID)
    for name in ("docker", "systemctl"):
        made.fake(name)
    (root / "fake" / "python3").symlink_to(sys.executable)
    # What is put, root reads: that is what a bucket would show. `aws s3 cp --region NAME [OPTION...] FROM TO`.
    made.fake("aws", f'[ "$1 $2" != "s3 cp" ] || cp -rL -- "${{@: -2:1}}" "{root}/put/$(date +%s%N)"')
    (root / "secret").write_text(SECRET)
    (root / "secret").chmod(0o600)
    (root / "run").mkdir()
    os.chown(root / "run", UID, UID)
    made.write_settings(None)
    for name in ("node.env", "job.env"):
        (root / name).chmod(0o600)
    (root / "calls").touch(0o600)
    if as_job(made, "test -x $ROOT/run").returncode:
        pytest.skip(f"nobody else may enter {root.parent}")
    yield made
    shutil.rmtree(root)


def as_job(tree: Any, line: str) -> subprocess.CompletedProcess[str]:
    """Bash as the trainer's user, in the run's folder; $ROOT is the node's."""
    env = {"PATH": os.environ["PATH"], "ROOT": str(tree.root)}
    return subprocess.run(
        [*AS_JOB, line], cwd=tree.root / "run", env=env, capture_output=True, text=True, timeout=30, check=False
    )


def as_root(tree: Any) -> None:
    """What root does on a node by and by: starts the trainer, puts records, looks, and says what an end means."""
    tree.run("run-trainer.sh")
    for script in ("upload-record.sh", "watch-node.sh", "leave-node.sh", "upload-record.sh"):
        tree.run(script, SERVICE_RESULT="exit-code", EXIT_CODE="exited", EXIT_STATUS="1")


def seen(tree: Any) -> str:
    """All that has left the node."""
    return "".join(path.read_text(errors="replace") for path in (tree.root / "put").rglob("*") if path.is_file())


@pytest.mark.parametrize("name", ["node.env", "job.env", "secret", "calls"])
def test_it_reads_nothing_of_roots(tree: Any, name: str) -> None:
    assert as_job(tree, f"cat $ROOT/{name}").returncode != 0


@pytest.mark.parametrize(
    "line",
    [
        "echo x >>$ROOT/bin/common.sh",
        "echo x >>$ROOT/lib/gangway/images/node/outbox.py",
        "mv $ROOT/bin $ROOT/was",
        "ln -s /tmp $ROOT/state/ended",
        "mkdir -p $ROOT/state/x",
        "rm -rf $ROOT/state",
        "touch $ROOT/node.env",
        "mv $ROOT/run $ROOT/elsewhere",
    ],
)
def test_it_writes_nothing_that_root_reads(tree: Any, line: str) -> None:
    assert as_job(tree, line).returncode != 0


def test_a_record_of_its_own_is_put(tree: Any) -> None:
    """Or the tests below would show nothing."""
    assert as_job(tree, "echo of-the-job >run.json").returncode == 0
    assert tree.run("upload-record.sh").returncode == 0
    assert "of-the-job" in seen(tree)


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "ln -s $ROOT/secret run.json",
        "ln $ROOT/secret run.json || ln -s $ROOT/node.env run.json",
        "mkfifo run.json",
        "mkdir run.json",
        "ln -s /dev/zero run.json",
        "mkdir samples && ln -s $ROOT/secret samples/000001kimg.png && echo {} >run.json",
        "ln -s $ROOT samples && ln -s $ROOT checkpoints && echo {} >run.json",
        "ln -s $ROOT/secret stats.jsonl && echo {} >run.json",
    ],
)
def test_root_shows_none_of_its_files(tree: Any, line: str) -> None:
    assert as_job(tree, line).returncode == 0
    as_root(tree)
    assert SECRET not in seen(tree)
    assert "MEMBER_KEY" not in seen(tree)


@pytest.mark.slow
def test_a_name_that_changes_while_root_looks_shows_nothing(tree: Any) -> None:
    """Thousands of times between a file of its own and a link."""
    swap = (
        "for i in {1..4000}; do ln -sf $ROOT/secret new; mv -fT new run.json; echo $i >new; mv -fT new run.json; done"
    )
    env = {"PATH": os.environ["PATH"], "ROOT": str(tree.root)}
    with subprocess.Popen([*AS_JOB, swap], cwd=tree.root / "run", env=env) as job:
        for _ in range(12):
            tree.run("upload-record.sh")
        job.kill()
    assert SECRET not in seen(tree)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["a[$(touch $ROOT/pwned)]", "$(touch $ROOT/pwned)", "`touch $ROOT/pwned`", "0;touch x"]
)
def test_root_runs_no_word_of_its_own(tree: Any, text: str) -> None:
    """The way in that a review had shown: a number that bash evaluates."""
    places = [
        "run.json",
        "stats.jsonl",
        f"started-at-{tree.key()}",
        f".launch/{tree.key()}/state.json",
        ".started-at.h.1",
    ]
    for place in places:
        done = as_job(
            tree, f"mkdir -p $(dirname '{place}') && printf '%s' '{text.replace('$ROOT', str(tree.root))}' >'{place}'"
        )
        assert done.returncode == 0, done.stderr
    as_root(tree)
    assert not (tree.root / "pwned").exists()
    assert not (tree.root / "run" / "x").exists()
