"""What a node does every minute: it leaves when the job's hours are over, or when nothing else has made it leave."""

from typing import Any

import pytest

TWO_GROUPS = "[ $2 != describe-auto-scaling-groups ] || printf 'demo-0-spot\\tdemo-1-on-demand\\n'"


@pytest.fixture
def idle_node(job_node: Any) -> Any:
    """A node whose trainer does not run, an hour after boot."""
    job_node.fake("aws", TWO_GROUPS)
    job_node.fake("systemctl", "echo inactive; exit 3")
    job_node.up_for(3600.25)
    return job_node


GRACE_SEC = 600


def minute_after_minute(node: Any, times: int = 2) -> None:
    for _ in range(times):
        done = node.run("watch-node.sh")
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("seconds", [7 * 3600, 8 * 3600 + GRACE_SEC - 1])
def test_a_node_that_is_needed_is_left_alone(idle_node: Any, seconds: float) -> None:
    idle_node.started_trainer(seconds)
    minute_after_minute(idle_node)
    assert idle_node.calls("aws") == []


def test_a_node_is_up_no_longer_than_the_jobs_hours(idle_node: Any) -> None:
    """What the job's own user writes is not looked at: this is by the machine's clock since its first start."""
    idle_node.started_trainer(8 * 3600 + GRACE_SEC)
    minute_after_minute(idle_node)
    assert [(event["exit_status"], event["reason"]) for event in idle_node.events()] == [(6, "max-hours")]
    assert idle_node.left()


def test_a_machine_that_slept_has_not_used_its_hours(idle_node: Any) -> None:
    """Its clock since boot goes on in sleep, and nobody looks."""
    idle_node.plan(terminate_when_done=False)
    idle_node.fake("systemctl", "echo active")
    idle_node.state("first-start").write_text("1000\n")
    for up in (1060, 1120 + 9 * 3600, 1180 + 9 * 3600):
        idle_node.up_for(up)
        minute_after_minute(idle_node, 1)
    assert ["stop", "gangway-trainer.service"] not in idle_node.calls("systemctl")
    assert idle_node.state("idle-sec").read_text() == f"{9 * 3600}\n"


@pytest.mark.parametrize(("max_hours", "ends"), [(0.8, True), (0.9, False)])
def test_a_node_on_which_no_job_began_counts_from_its_boot(idle_node: Any, max_hours: float, ends: bool) -> None:
    idle_node.plan(max_hours=max_hours)
    minute_after_minute(idle_node)
    assert idle_node.left() == ends


@pytest.mark.parametrize("tries_again", [True, False])
def test_a_machine_that_nobody_replaces_is_looked_at_again(idle_node: Any, tries_again: bool) -> None:
    idle_node.fake("systemctl", "[ $1 != is-active ] || { echo inactive; exit 3; }")
    idle_node.state("unfit").touch()
    idle_node.more_settings["TRIES_AGAIN"] = "yes" if tries_again else ""
    minute_after_minute(idle_node, 1)
    start = ["start", "--no-block", "gangway-trainer.service"]
    assert (start in idle_node.calls("systemctl")) == tries_again


def test_a_node_that_could_not_leave_tries_again(idle_node: Any) -> None:
    idle_node.state("ended").write_text("3 fabric-too-slow\n")
    assert idle_node.run("watch-node.sh").returncode == 0
    assert idle_node.left()
    assert idle_node.events() == []


def test_a_node_that_is_to_stay_is_not_told_to_leave_by_the_watch(idle_node: Any) -> None:
    idle_node.started_trainer(9 * 3600)
    idle_node.plan(terminate_when_done=False)
    minute_after_minute(idle_node, 3)
    assert (idle_node.left(), len(idle_node.events())) == (False, 1)


@pytest.mark.parametrize("state", ["active", "activating", "deactivating"])
def test_a_running_trainer_stops_itself_and_is_left_alone(idle_node: Any, state: str) -> None:
    idle_node.fake("systemctl", f"echo {state}")
    idle_node.started_trainer(8 * 3600 + 60)
    assert idle_node.run("watch-node.sh").returncode == 0
    assert idle_node.calls("systemctl") == [["is-active", "gangway-trainer.service"]]
    assert idle_node.calls("aws") == []


@pytest.mark.attack("a job (uid 10001)", "waits for somebody to empty the node's firewall")
@pytest.mark.parametrize("state", ["active", "activating"])
def test_a_firewall_that_was_emptied_is_closed_again_or_the_trainer_stops(idle_node: Any, state: str) -> None:
    idle_node.more_settings["TRAINER_UID"] = "10001"
    idle_node.fake("systemctl", f"[ $1 != is-active ] || echo {state}")
    minute_after_minute(idle_node, 1)
    assert ["--wait", "10", "--table", "filter", "--check", "OUTPUT"] in [
        call[:6] for call in idle_node.calls("iptables")
    ]
    assert ["stop", "gangway-trainer.service"] not in idle_node.calls("systemctl")
    idle_node.fake("setpriv")
    assert idle_node.run("watch-node.sh").returncode == 1
    assert ["stop", "gangway-trainer.service"] in idle_node.calls("systemctl")


def test_a_trainer_that_is_stuck_after_the_jobs_hours_is_stopped(idle_node: Any) -> None:
    idle_node.fake("systemctl", "echo active")
    idle_node.started_trainer(8 * 3600 + GRACE_SEC)
    minute_after_minute(idle_node, 1)
    assert ["stop", "gangway-trainer.service"] in idle_node.calls("systemctl")
    idle_node.fake("systemctl", "echo inactive; exit 3")
    minute_after_minute(idle_node, 1)
    assert idle_node.left()


def rested(node: Any, first: float, hours: float) -> None:
    """The trainer was started a while after the boot, ran an hour, and somebody stopped it for some hours, while the
    watch looked; then it was started again.
    """
    node.state("first-start").write_text(f"{int(first)}\n")
    node.fake("systemctl", "echo active")
    node.up_for(first + 3600)
    minute_after_minute(node, 1)
    node.fake("systemctl", "echo inactive; exit 3")
    for part in (0, 0.5, 1):
        node.up_for(first + 3600 + part * hours * 3600)
        minute_after_minute(node, 1)
    node.fake("systemctl", "echo active")


@pytest.mark.slow
@pytest.mark.parametrize("terminate", [True, False])
def test_a_machine_made_for_the_job_goes_alone_where_its_trainer_rested(idle_node: Any, terminate: bool) -> None:
    """The launcher counts the job's hours: they are not over, and others go on."""
    idle_node.plan(terminate_when_done=terminate)
    rested(idle_node, 1000, 7)
    idle_node.up_for(1000 + 8 * 3600 + GRACE_SEC)
    minute_after_minute(idle_node, 1)
    assert (["stop", "gangway-trainer.service"] in idle_node.calls("systemctl")) == terminate
    if terminate:
        idle_node.fake("systemctl", "echo inactive; exit 3")
    minute_after_minute(idle_node)
    assert idle_node.left() == terminate
    assert not idle_node.state("ended").exists()
    assert "suspend-processes" not in [call[0] for call in idle_node.said_to_group()], "others may come"
    assert [event["event"] for event in idle_node.events()] == ["node-outlived"] * terminate


def test_a_launcher_that_hangs_after_a_rest_ends_the_job_for_all(idle_node: Any) -> None:
    idle_node.plan(terminate_when_done=False)
    rested(idle_node, 1000, 7)
    over = 1000 + (7 + 8) * 3600 + GRACE_SEC
    idle_node.state("looked").write_text(f"{over - 61} \n")
    idle_node.up_for(over - 1)
    minute_after_minute(idle_node, 1)
    assert idle_node.events() == []
    idle_node.up_for(over)
    minute_after_minute(idle_node, 1)
    assert [(event["exit_status"], event["reason"]) for event in idle_node.events()] == [(6, "max-hours")]


def test_a_node_on_which_no_job_began_tells_nobody_of_an_end(idle_node: Any) -> None:
    idle_node.plan(max_hours=0.8)
    minute_after_minute(idle_node)
    assert idle_node.left()
    assert not idle_node.state("ended").exists()
