"""A node whose job has ended leaves once the record is where it outlives it, and does not stay for ever without."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangway.images.openstack import OpenstackNodeSpec

TWO_GROUPS = "[ $2 != describe-auto-scaling-groups ] || printf 'demo-0-spot\\tdemo-1-on-demand\\n'"


def exited(status: str) -> dict[str, str]:
    """What systemd tells ExecStopPost of a trainer that exited."""
    return {
        "SERVICE_RESULT": "success" if status == "0" else "exit-code",
        "EXIT_CODE": "exited",
        "EXIT_STATUS": status,
    }


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
