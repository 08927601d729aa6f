"""What a machine of Slurm's runs, as it is shipped: real bash and curl, fake commands, IMDSv2 in small."""

import gzip
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def installing(slurm_machine: Any, tmp_path: Path) -> Any:
    """One whose archive has all packages, and whose store has the key."""
    (tmp_path / "etc/munge").mkdir(parents=True)
    (tmp_path / "fake" / "python3").unlink()
    slurm_machine.fake("dpkg-query", "exit 1")
    slurm_machine.fake("python3", f"echo {'k' * 64}")
    slurm_machine.fake("id", 'case "$*" in "-u ann") echo 20001 ;; "-u bob") echo 20002 ;; *) exit 1 ;; esac')
    return slurm_machine


def test_each_user_has_the_same_number_on_each_machine(installing: Any) -> None:
    assert installing.run("slurm-install.sh").returncode == 0
    made = ["--create-home", "--shell", "/bin/bash"]
    assert installing.calls("useradd") == [["--uid", "20001", *made, "ann"], ["--uid", "20002", *made, "bob"]]


def test_an_image_in_which_a_name_is_somebody_elses_gives_the_machine_up(installing: Any) -> None:
    """Its jobs would be another user's to the file system."""
    installing.fake("id", "echo 1000")
    done = installing.run("slurm-install.sh")
    assert done.returncode == 1
    assert "user ann of the image does not have UID 20001" in done.stderr
    assert installing.UNHEALTHY in installing.asked("autoscaling")


def test_the_key_is_munges_alone(installing: Any, tmp_path: Path) -> None:
    done = installing.run("slurm-install.sh")
    assert done.returncode == 0, done.stderr
    key = tmp_path / "etc/munge/munge.key"
    assert (key.read_text(), key.stat().st_mode & 0o777) == ("k" * 64 + "\n", 0o600)
    assert ["munge:munge", f"{key}.new"] in installing.calls("chown")
    assert ["restart", "munge.service"] in installing.calls("systemctl")
    # Masked before they are installed: nothing is begun that has nothing to read.
    assert installing.every_call()[1][:2] == ["systemctl", "mask"]
    assert installing.calls("apt-get")[1][-2:] == ["munge", "slurmd"]


def test_a_node_with_the_packages_of_its_machine_image_installs_none(installing: Any) -> None:
    installing.fake("dpkg-query")
    done = installing.run("slurm-install.sh")
    assert done.returncode == 0, done.stderr
    assert installing.calls("apt-get") == []
    assert ["restart", "munge.service"] in installing.calls("systemctl")


def test_a_key_that_is_not_one_gives_the_machine_up(installing: Any, tmp_path: Path) -> None:
    installing.fake("python3", "echo short")
    done = installing.run("slurm-install.sh", SLURM_DEADLINE_SEC="0")
    assert done.returncode == 1
    assert "/gangway/demo/munge-key" in done.stderr
    assert not (tmp_path / "etc/munge/munge.key").exists()
    assert installing.UNHEALTHY in installing.asked("autoscaling")


def test_a_machine_becomes_the_node_that_it_is_told_to_be(slurm_machine: Any, imds: Any, tmp_path: Path) -> None:
    imds.answers["tags/instance/gangway:slurm-node"] = [None, "spot-n3"]
    done = slurm_machine.run("slurm-join.sh")
    assert done.returncode == 0, done.stderr
    assert slurm_machine.calls("slurmd") == [
        ["-D", "-N", "spot-n3", "--conf-server", "head.demo.gangway.internal:6817"]
    ]
    assert (tmp_path / "name").read_text() == "spot-n3\n"


def test_a_name_of_another_form_is_waited_out(slurm_machine: Any, imds: Any) -> None:
    imds.answers["tags/instance/gangway:slurm-node"] = ["$(reboot)", "x y-n1", "spot", "spot-n1"]
    slurm_machine.run("slurm-join.sh")
    assert [call[2] for call in slurm_machine.calls("slurmd")] == ["spot-n1"]


@pytest.mark.parametrize(("devices", "code"), [(32, 0), (31, 1)])
def test_a_node_that_is_not_fit_is_drained_and_not_replaced_by_itself(
    slurm_machine: Any, tmp_path: Path, devices: int, code: int
) -> None:
    for number in range(devices):
        device = tmp_path / "sys" / f"efa_{number}" / "device"
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x1d0f\n")
    slurm_machine.write_settings(None)
    (tmp_path / "check.env").write_text((tmp_path / "node.env").read_text() + "ROLE=head\nLOG_GROUP=\n")
    slurm_machine.env["SLURMD_NODENAME"] = "spot-n1"
    done = slurm_machine.run("slurm-health.sh", SYSFS_INFINIBAND=f"{tmp_path}/sys", EFA_DEADLINE_SEC="0")
    assert done.returncode == code
    drained = [
        ["update", "nodename=spot-n1", "state=drain",
         "reason=gangway: unfit: gangway: not ready: 31 EFA interfaces after 0 s, 32 planned"]
    ]  # fmt: skip
    assert slurm_machine.calls("scontrol") == (drained if code else [])
    assert slurm_machine.asked("autoscaling") == []


JOBS = """[ -e {root}/left ] || printf '12\\n12\\n13\\n'; [ -z "$1" ] || touch {root}/left"""


@pytest.mark.parametrize("notice", ["spot-interruption 2026-11-27T08:00:00Z", "lifecycle-terminate"])
def test_a_notice_gives_the_nodes_jobs_back(slurm_machine: Any, imds: Any, tmp_path: Path, notice: str) -> None:
    (tmp_path / "held").write_text(f"rebalance\n{notice}\n")
    (tmp_path / "name").write_text("spot-n1\n")
    imds.items["autoscaling/target-lifecycle-state"] = "Terminated" if "lifecycle" in notice else "InService"
    slurm_machine.fake("aws", slurm_machine.OWN_GROUP)
    slurm_machine.fake("squeue", JOBS.format(root=tmp_path))
    slurm_machine.fake("scontrol", '[ "$2" != 13 ]')
    done = slurm_machine.run("slurm-notice.sh")
    assert done.returncode == 0, done.stderr
    calls = slurm_machine.calls("scontrol")
    assert calls == [
        ["update", "nodename=spot-n1", "state=drain", "reason=gangway: its machine is taken back"],
        ["requeue", "12"],
        ["requeue", "13"],
    ]
    assert slurm_machine.calls("scancel") == [["13"]]
    assert (slurm_machine.COMPLETED in slurm_machine.said_to_group()) == ("lifecycle" in notice)


def test_a_machine_that_never_was_a_node_goes_at_once(slurm_machine: Any, imds: Any, tmp_path: Path) -> None:
    (tmp_path / "held").write_text("lifecycle-terminate\n")
    imds.items["autoscaling/target-lifecycle-state"] = "Terminated"
    slurm_machine.fake("aws", slurm_machine.OWN_GROUP)
    assert slurm_machine.run("slurm-notice.sh").returncode == 0
    assert slurm_machine.COMPLETED in slurm_machine.said_to_group()
    assert slurm_machine.calls("scontrol") == []


def test_accounts_are_told_in_order_and_told_again(slurm_machine: Any, tmp_path: Path) -> None:
    (tmp_path / "accounts").write_text("add qos low\nadd account vision cluster=demo\n")
    slurm_machine.fake("sacctmgr", '[ "$3" != add ]')
    done = slurm_machine.run("slurm-accounts.sh", SLURM_ACCOUNTS=f"{tmp_path}/accounts")
    assert done.returncode == 0, done.stderr
    assert [call[2:] for call in slurm_machine.calls("sacctmgr")][1:-1] == [
        ["add", "qos", "low"],
        ["add", "account", "vision", "cluster=demo"],
    ]


def test_users_that_the_stack_names_no_more_are_taken_out_of_their_accounts(slurm_machine: Any, tmp_path: Path) -> None:
    (tmp_path / "accounts").write_text("add user ann account=vision cluster=demo\n")
    there = "demo|vision|\ndemo|vision|ann\ndemo|speech|ann\ndemo|vision|bob\ndemo|root|root\nold|vision|ann"
    slurm_machine.fake("sacctmgr", f"[ $3 != list ] || echo '{there}'")
    assert slurm_machine.run("slurm-accounts.sh", SLURM_ACCOUNTS=f"{tmp_path}/accounts").returncode == 0
    assert [call[3:] for call in slurm_machine.calls("sacctmgr") if call[2] == "remove"] == [
        ["user", "name=ann", "account=speech", "cluster=demo"],
        ["user", "name=bob", "account=vision", "cluster=demo"],
        ["user", "name=ann", "account=vision", "cluster=old"],
    ]


@pytest.mark.parametrize(("user", "code"), [("0", 0), ("4294967", 1)])
def test_a_job_of_a_user_who_came_after_the_machine_gets_another_one(slurm_machine: Any, user: str, code: int) -> None:
    slurm_machine.more_settings["HEALTH_CHECKS"] = "''"
    slurm_machine.env |= {"SLURMD_NODENAME": "spot-n1", "SLURM_JOB_UID": user}
    assert slurm_machine.run("slurm-health.sh").returncode == code
    reasons = [call[-1] for call in slurm_machine.calls("scontrol")]
    assert reasons == [f"reason=gangway: unfit: unknown user {user}"] * code


def test_the_state_is_slurms_and_the_folder_of_jobs_the_users(slurm_machine: Any, tmp_path: Path) -> None:
    for name in ("install", "hostnamectl"):
        slurm_machine.fake(name)
    slurm_machine.more_settings |= {
        "SLURM_ACCOUNTS": "", "SLURM_STATE_DIR": "/fsx/.gangway/slurm", "SLURM_SHARED_DIR": "/fsx/jobs",
        "SLURM_HEAD_NAME": "head",
    }  # fmt: skip
    done = slurm_machine.run("slurm-head.sh")
    assert done.returncode == 0, done.stderr
    made = {call[-1].removeprefix(str(tmp_path)): call[1:-1] for call in slurm_machine.calls("install")}
    everybody = ["-m", "1777", "-o", "root", "-g", "root"]
    assert made.pop("/fsx/jobs") == everybody
    assert "/fsx/.gangway/slurm/state" in made
    assert all(words == ["-m", "0700", "-o", "slurm", "-g", "slurm"] for words in made.values())


@pytest.fixture
def saving(slurm_machine: Any, tmp_path: Path) -> Any:
    """A head whose database has a cluster, and a former dump."""
    slurm_machine.fake("mysql", "echo 1")
    slurm_machine.fake("mysqldump", "echo new")
    (tmp_path / "dump").write_bytes(gzip.compress(b"former\n"))
    return slurm_machine


def save(machine: Any) -> Any:
    return machine._bash(["bash", str(machine.bin / "slurm-save.sh"), f"{machine.root}/dump"], None, {})


def test_a_dump_takes_the_former_ones_place(saving: Any, tmp_path: Path) -> None:
    done = save(saving)
    assert done.returncode == 0, done.stderr
    assert gzip.decompress((tmp_path / "dump").read_bytes()) == b"new\n"
    assert (tmp_path / "dump").stat().st_mode & 0o777 == 0o600
    assert saving.calls("mysqldump") == [["--single-transaction", "slurm_acct_db"]]


@pytest.mark.parametrize(
    ("name", "body", "code"),
    [
        ("mysqldump", "echo half; exit 2", 2), ("mysql", "exit 1", 1), ("mysql", "echo 0", 0),
        ("gzip", "cat; exit 1", 1), ("sync", "exit 1", 1),
    ],
)  # fmt: skip
def test_a_dump_that_fails_or_is_empty_leaves_the_former_one(
    saving: Any, tmp_path: Path, name: str, body: str, code: int
) -> None:
    saving.fake(name, body)
    assert save(saving).returncode == code
    assert gzip.decompress((tmp_path / "dump").read_bytes()) == b"former\n"


def test_nothing_is_saved_each_time_that_slurmdbd_fails(saving: Any, tmp_path: Path) -> None:
    saving.env["SERVICE_RESULT"] = "exit-code"
    assert save(saving).returncode == 0
    assert gzip.decompress((tmp_path / "dump").read_bytes()) == b"former\n"


MYSQL = """[[ $* != *"SELECT EXISTS"* ]] || {{ echo {ready}; exit; }}
[ "$*" != slurm_acct_db ] || {{ cat >>{root}/restored; {fails}; }}"""


@pytest.fixture
def accounting_head(slurm_machine: Any, tmp_path: Path) -> Any:
    """A head with accounting and what an earlier one has saved."""
    for name in ("install", "hostnamectl"):
        slurm_machine.fake(name)
    slurm_machine.more_settings |= {
        "SLURM_ACCOUNTS": "yes", "SLURM_STATE_DIR": "/state", "SLURM_SHARED_DIR": "''", "SLURM_HEAD_NAME": "head",
        "SLURM_ACCOUNTING_DUMP": "/state/dump",
    }  # fmt: skip
    for path in ("etc/slurm/slurmdbd.conf", "state/dump"):
        (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / "etc/slurm/slurmdbd.conf").touch()
    (tmp_path / "state/dump").write_bytes(gzip.compress(b"saved\n" * 1000))
    slurm_machine.fake("mysql", MYSQL.format(ready=0, root=tmp_path, fails="true"))
    return slurm_machine


def test_a_new_head_restores_what_was_saved(accounting_head: Any, tmp_path: Path) -> None:
    done = accounting_head.run("slurm-head.sh")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "restored").read_text() == "saved\n" * 1000
    assert "accounting restored" in done.stderr
    assert (tmp_path / "state/dump").exists()


def test_a_head_that_has_its_database_keeps_it(accounting_head: Any, tmp_path: Path) -> None:
    accounting_head.fake("mysql", MYSQL.format(ready=1, root=tmp_path, fails="true"))
    assert accounting_head.run("slurm-head.sh").returncode == 0
    assert not (tmp_path / "restored").exists()
    assert not any("DROP" in " ".join(call) for call in accounting_head.calls("mysql"))


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_damaged_dump_is_kept_and_does_not_stop_the_head(accounting_head: Any, tmp_path: Path, is_cut: bool) -> None:
    dump = tmp_path / "state/dump"
    if is_cut:
        dump.write_bytes(dump.read_bytes()[:-12])
    else:
        accounting_head.fake("mysql", MYSQL.format(ready=0, root=tmp_path, fails="exit 1"))
    damaged = dump.read_bytes()
    done = accounting_head.run("slurm-head.sh")
    assert done.returncode == 0, done.stderr
    (kept,) = dump.parent.iterdir()
    assert kept.name.startswith("dump.unusable-")
    assert kept.read_bytes() == damaged
    assert f"accounting starts empty: cannot restore {kept}" in done.stderr
    # What was restored of it is dropped.
    assert ["DROP" in " ".join(call) for call in accounting_head.calls("mysql")][-2:] == [True, False]


def test_a_database_that_is_down_costs_no_dump(accounting_head: Any, tmp_path: Path) -> None:
    """The unit runs the script again."""
    counted = f'echo >>{tmp_path}/tries; [ "$(wc -l <{tmp_path}/tries)" -lt 3 ] || exit 1\n'
    accounting_head.fake("mysql", counted + MYSQL.format(ready=0, root=tmp_path, fails="true"))
    assert accounting_head.run("slurm-head.sh").returncode == 1
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["dump"]
