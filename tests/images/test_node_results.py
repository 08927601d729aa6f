"""What outlives a node whose run was on its own disk: checkpoint, pictures, statistics. Both clouds."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangway.images.openstack import OpenstackNodeSpec
from gangway.images.specs import FileSystem
from tests.images.machines import exited

RUN = {
    "run.json": "{}",
    "config.json": "{1}",
    "stats.jsonl": "1\n",
    "samples.png": "grid",
    "reals.png": "real",
    "samples/000000kimg.png": "first",
    "samples/000017 kimg.png": "second",
    "checkpoints/000000017920.pt": "old",
    "checkpoints/000000017920.json": "{old}",
    "checkpoints/000000019072.pt": "new",
    "checkpoints/000000019072.json": "{new}",
    "data/00000.npy": "made anew from a seed",
}
KEPT = {name: text for name, text in RUN.items() if not name.startswith("data/") and "17920" not in name}


def has_run(folder: Path) -> None:
    for name, text in RUN.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def on_aws(machine: Any, tmp_path: Path) -> Any:
    """A worker without a file system; its `aws s3 cp` copies into a folder that stands for the bucket."""
    machine.plan(run_dir=f"{tmp_path}/run", file_system=None)
    copy = f'target={tmp_path}/bucket/${{@: -1}}; mkdir -p "$(dirname "$target")"; cp -r "${{@: -2:1}}" "$target.new"'
    merge = '[ ! -d "$target.new" ] || { mkdir -p "$target"; cp -r "$target.new/." "$target"; rm -r "$target.new"; }'
    machine.fake(
        "aws", f'[ "$1" = s3 ] || exit 0; {copy}; {merge}; [ ! -f "$target.new" ] || mv "$target.new" "$target"'
    )
    has_run(tmp_path / "run")
    return machine


@pytest.fixture
def on_google(gcp_machine: Any, tmp_path: Path) -> Any:
    """A worker without a file system."""
    gcp_machine.plan(run_dir=f"{tmp_path}/run", file_system=None, data=None)
    has_run(tmp_path / "run")
    return gcp_machine


def in_bucket_of_aws(machine: Any) -> dict[str, str]:
    root = machine.root / "bucket/s3:/gangway-records/runs/dcgan-celeba64"
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def in_bucket_of_google(machine: Any) -> dict[str, str]:
    prefix = "gangway-records/demo/dcgan-celeba64/"
    return {key.removeprefix(prefix): content.decode() for key, content in machine.gce.objects.items()}


every_cloud = pytest.mark.parametrize(
    ("name", "in_bucket"), [("on_aws", in_bucket_of_aws), ("on_google", in_bucket_of_google)]
)


@every_cloud
def test_results_stand_beside_the_record(
    name: str, in_bucket: Callable[[Any], dict[str, str]], request: pytest.FixtureRequest
) -> None:
    worker = request.getfixturevalue(name)
    done = worker.run("upload-record.sh")
    assert done.returncode == 0, done.stderr
    assert in_bucket(worker) == KEPT
    run = worker.root / "run"
    left = {str(path.relative_to(run)): path.read_text() for path in run.rglob("*") if path.is_file()}
    assert left == RUN, "nothing is moved or left behind"


@pytest.mark.slow
@every_cloud
def test_results_are_put_again_when_there_are_new_ones(
    name: str, in_bucket: Callable[[Any], dict[str, str]], request: pytest.FixtureRequest
) -> None:
    worker = request.getfixturevalue(name)
    calls = worker.gce.calls if name == "on_google" else None
    for _ in range(2):
        assert worker.run("upload-record.sh").returncode == 0
    copies = worker.asked("s3") if calls is None else [call for call in calls if "upload" in call.path]
    assert len(copies) == (2 if calls is None else len(KEPT))
    (worker.root / "run/stats.jsonl").write_text("1\n2\n")
    assert worker.run("upload-record.sh").returncode == 0
    assert in_bucket(worker)["stats.jsonl"] == "1\n2\n"


@every_cloud
def test_a_run_on_a_file_system_is_copied_when_its_job_has_ended(
    name: str, in_bucket: Callable[[Any], dict[str, str]], request: pytest.FixtureRequest
) -> None:
    """The file system goes with the stack; until then it keeps what it has."""
    worker = request.getfixturevalue(name)
    if name == "on_aws":
        worker.plan(file_system=FileSystem("lustre", "fs.example@tcp:/x", "/fsx"))
    else:
        worker.plan(file_system=request.getfixturevalue("gcp_node").file_system)
    assert worker.run("upload-record.sh").returncode == 0
    assert in_bucket(worker) == {"run.json": "{}"}
    worker.state("ended").write_text("6 max-hours\n")
    assert worker.run("upload-record.sh").returncode == 0
    assert in_bucket(worker) == KEPT


def test_a_run_whose_folder_is_the_bucket_is_not_copied(on_google: Any) -> None:
    on_google.plan(file_system=FileSystem("bucket", "gangway-records/demo/shared", f"{on_google.root}"))
    on_google.state("ended").write_text("0 done\n")
    assert on_google.run("upload-record.sh").returncode == 0
    assert in_bucket_of_google(on_google) == {"run.json": "{}"}


@every_cloud
def test_what_only_points_elsewhere_is_not_put(
    name: str, in_bucket: Callable[[Any], dict[str, str]], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Root puts it, and the job's user may have written it."""
    worker = request.getfixturevalue(name)
    (tmp_path / "secret").write_text("of root")
    (worker.root / "run/reals.png").unlink()
    (worker.root / "run/reals.png").symlink_to(tmp_path / "secret")
    (worker.root / "run/samples/000042kimg.png").symlink_to(tmp_path / "secret")
    assert worker.run("upload-record.sh").returncode == 0
    assert in_bucket(worker) == {key: text for key, text in KEPT.items() if key != "reals.png"}


def test_a_run_that_has_only_begun_has_little(on_google: Any) -> None:
    for name in RUN:
        if name not in ("config.json", "data/00000.npy"):
            (on_google.root / "run" / name).unlink()
    done = on_google.run("upload-record.sh")
    assert done.returncode == 0, done.stderr
    assert in_bucket_of_google(on_google) == {"config.json": "{1}"}


def test_results_that_are_refused_are_told_and_the_record_is_there(on_aws: Any, tmp_path: Path) -> None:
    on_aws.fake("aws", '[[ "$*" != *--recursive* ]] || { echo "AccessDenied: $1" >&2; exit 254; }')
    assert on_aws.run("upload-record.sh").returncode == 1
    assert [(event["event"], event["reason"]) for event in on_aws.events()] == [
        ("record-put", "s3://gangway-records/runs/dcgan-celeba64/run.json"),
        ("record-not-put", "AccessDenied: s3"),
    ]
    assert not list((tmp_path / "run").glob(".results*"))
    on_aws.fake("aws")
    assert on_aws.run("upload-record.sh").returncode == 0
    assert len([call for call in on_aws.asked("s3") if "--recursive" in call]) == 2


def test_results_that_take_too_long_are_given_up(on_aws: Any) -> None:
    on_aws.fake("aws", '[[ "$*" != *--recursive* ]] || exec sleep 60')
    on_aws.fake("timeout", 'exec /usr/bin/timeout 0.1 "${@:2}"')
    assert on_aws.run("upload-record.sh").returncode == 1
    assert [call[:2] for call in on_aws.calls("timeout")] == [["300", "aws"]]
    _, event = on_aws.events()
    assert (event["event"], event["reason"]) == ("record-not-put", "exit status 124")


TWO_GROUPS = "[ $2 != describe-auto-scaling-groups ] || printf 'demo-0-spot\\tdemo-1-on-demand\\n'"


REFUSED = '[ "$1" != s3 ] || { echo "SlowDown" >&2; exit 1; }'


@pytest.fixture
def done_node(job_node: Any, tmp_path: Path) -> Any:
    """A node whose job is done, and whose record is on disk."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run/run.json").write_text("{}")
    job_node.fake("aws", TWO_GROUPS)
    job_node.fake("systemctl", "echo inactive; exit 3")
    job_node.state("ran").touch()
    job_node.env |= exited("0")
    return job_node


@pytest.mark.slow
def test_a_node_stays_until_the_record_is_put(done_node: Any) -> None:
    done_node.fake("aws", f"{REFUSED}; {TWO_GROUPS}")
    assert done_node.run("upload-record.sh").returncode == 1
    assert done_node.run("leave-node.sh").returncode == 0
    for _ in range(2):
        done = done_node.run("watch-node.sh")
        assert "cannot upload the record: watch-node.sh" in done.stderr
        assert not done_node.left()
    done_node.fake("aws", TWO_GROUPS)
    assert done_node.run("watch-node.sh").returncode == 0
    assert [call[:2] for call in done_node.asked("s3")][-1] == ["s3", "cp"]
    assert done_node.left()


def test_a_bucket_that_hesitates_gets_the_record_at_once(done_node: Any) -> None:
    done_node.plan(log_group=None)
    tried = f"{done_node.root}/tried"
    done_node.fake("aws", f"[ $1 != s3 ] || [ -e {tried} ] || {{ touch {tried}; exit 1; }}")
    assert done_node.run("leave-node.sh", END_SEC="20").returncode == 0
    done = done_node.run("watch-node.sh", END_SEC="20")
    assert "cannot upload the record" not in done.stderr
    assert done_node.state("uploaded").exists()
    assert done_node.left()


@pytest.mark.parametrize(("minutes", "stays"), [(59, True), (61, False)])
def test_a_bucket_that_is_gone_keeps_a_node_for_an_hour(done_node: Any, minutes: int, stays: bool) -> None:
    done_node.fake("aws", f"{REFUSED}; {TWO_GROUPS}")
    done_node.state("ended").write_text("0 done\n")
    done_node.up_for(1e6)
    done_node.state("ended-at").write_text(f"{1_000_000 - minutes * 60}\n")
    assert ("leaves without it" in done_node.run("watch-node.sh").stderr) == (not stays)
    assert done_node.left() == (not stays)


def test_a_file_system_that_hangs_keeps_a_node_no_longer(done_node: Any) -> None:
    done_node.fake("timeout", '[ "$1" != 360 ] || exit 124; exec /usr/bin/timeout "$@"')
    done_node.state("ended").write_text("0 done\n")
    assert done_node.run("watch-node.sh", KEEP_SEC="0").returncode == 0
    assert done_node.left()


def test_a_node_that_stays_is_done_once_the_record_is_put_or_given_up(done_node: Any) -> None:
    done_node.plan(terminate_when_done=False)
    assert done_node.run("leave-node.sh").returncode == 0
    for _ in range(2):
        assert done_node.run("watch-node.sh").returncode == 0
    assert done_node.state("kept").exists()
    puts = len(done_node.asked("s3"))
    assert done_node.run("watch-node.sh").returncode == 0
    assert len(done_node.asked("s3")) == puts


def test_a_job_without_a_record_keeps_no_node(done_node: Any, tmp_path: Path) -> None:
    (tmp_path / "run/run.json").unlink()
    done_node.fake("aws", f"{REFUSED}; {TWO_GROUPS}")
    done_node.env |= exited("2")
    for script in ("leave-node.sh", "watch-node.sh"):
        assert done_node.run(script).returncode == 0
    assert done_node.left()


def test_results_that_cannot_be_put_keep_the_machine(
    openstack_machine: Any, openstack_plain_node: OpenstackNodeSpec, swift: Any, tmp_path: Path
) -> None:
    """Its disk has the only checkpoint, and nobody starts it again."""
    openstack_machine.spec_ = replace(openstack_plain_node, run_dir=f"{tmp_path}/run", terminate_when_done=True)
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "checkpoints" / "000100.pt").write_text("weights")
    openstack_machine.state("ran").touch()
    swift.refusals += [503] * 9
    done = openstack_machine.run_ended(0)
    assert "watch-node.sh will retry until" in done.stderr
    assert ["poweroff"] not in openstack_machine.calls("systemctl")


@pytest.fixture
def untold(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A machine whose job has ended, and whose bucket takes nothing."""
    machine = request.getfixturevalue(request.param)
    machine.plan(run_dir=f"{tmp_path}/run")
    machine.fake("systemctl", "[ $1 = is-system-running ] && echo running || echo inactive")
    machine.state("ran").touch()
    machine.env |= exited("2")
    if request.param == "gcp_machine":
        machine.gce.denied.add("storage")
    else:
        machine.vm.denied.add("blob.core.windows.net")
    return machine


@pytest.mark.slow
@pytest.mark.parametrize("untold", ["gcp_machine", "azure_machine"], indirect=True)
def test_a_bucket_that_takes_no_word_of_the_end_keeps_a_node_for_an_hour(untold: Any) -> None:
    assert untold.run("leave-node.sh").returncode == 0
    went = []
    for minutes in (59, 61, 62):
        untold.up_for(1e6)
        untold.state("ended-at").write_text(f"{1_000_000 - minutes * 60}\n")
        done = untold.run("watch-node.sh")
        went.append("cannot stop launches for 3600 s: this node leaves" in done.stderr)
        assert untold.state("kept").exists() == (minutes > 60), done.stderr
    assert went == [False, True, False], "said once"
    assert [line["event"] for line in untold.events()].count("end-not-told") == 1
    assert [verb for verb in untold.verbs() if "delete" in verb.lower()]
