"""What a run by hand on the hosts of TPU slices is started with; and that its key keeps others out."""

import pytest

from gangway.trainer.launch import launcher
from gangway.trainer.rendezvous.slice_meeting import meeting_argv

HOSTS = ["10.0.0.1", "10.0.0.2"]


def test_one_chip_needs_no_launcher_and_one_host_no_meeting() -> None:
    assert meeting_argv(1, ["10.0.0.1"]) == []
    assert meeting_argv(4, ["10.0.0.1"], key="job.pem") == ["--standalone", "--nproc-per-node=4"]


def test_hosts_meet_at_the_first_of_the_first_slice() -> None:
    assert "--rdzv-endpoint=10.0.0.1:29400" in meeting_argv(4, HOSTS)
    several = meeting_argv(4, ["10.0.1.1", "10.0.1.2"], 3, "10.0.0.1:8080")
    assert "--rdzv-endpoint=10.0.0.1:29400" in several
    assert "--nnodes=6" in several


def test_with_a_key_they_meet_by_it_and_not_as_torchrun_would() -> None:
    argv = meeting_argv(4, HOSTS, key="job.pem")
    assert argv[:2] == ["--member-key", "job.pem"], "the launcher's own flags come before torchrun's"
    assert "--rdzv-backend=gangway" in argv
    assert "--rdzv-backend=c10d" in meeting_argv(4, HOSTS)


def test_the_launcher_reads_that_key(capfd: pytest.CaptureFixture[str]) -> None:
    """A file that is not there ends the run before anybody is met; a run without one is warned of."""
    argv = [
        *meeting_argv(1, HOSTS, key="/no/such/job.pem"),
        "-m",
        "gangway.trainer",
        "train",
        "--preset",
        "dcgan-digits",
    ]
    assert launcher.main(argv) == 2
    assert "/no/such/job.pem" in capfd.readouterr().err
