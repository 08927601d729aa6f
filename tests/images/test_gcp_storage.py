"""File systems of a machine on Google Cloud, and the data in them: real bash and Python, fake mounts, APIs in small."""

import itertools
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangway.images.gcp import DataSource, GcpHeadSpec, TpuHostSpec
from gangway.images.specs import FileSystem

IMPORT = '{"url": "https://lustre.googleapis.com/v1/projects/p/locations/z/instances/i:importData", "body": {"a": 1}}'


KINDS = {
    "lustre": (FileSystem("lustre", "10.0.0.2@tcp:/gwdemo", "?"), ["-t", "lustre", "-o", "relatime,flock"], "LUSTRE"),
    "nfs": (
        FileSystem("nfs", "10.0.0.3:/share", "?"),
        ["-t", "nfs", "-o", "hard,timeo=600,retrans=3,rsize=524288,wsize=524288,nfsvers=3"],
        "NFS",
    ),
}


def mounts(machine: Any, kind: str) -> str:
    """Has the machine mount it; what is told to wait no longer than the first try."""
    machine.plan(file_system=replace(KINDS[kind][0], mount_point=f"{machine.root}/shared"))
    machine.fake("mount.nfs")
    return KINDS[kind][2] + "_DEADLINE_SEC"


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_system_is_mounted_once(bare: Any, kind: str) -> None:
    deadline = mounts(bare, kind)
    done = bare.run(f"mount-{kind}.sh", **{deadline: "10"})
    assert done.returncode == 0, done.stderr
    assert bare.calls("mount") == [[*KINDS[kind][1], KINDS[kind][0].source, f"{bare.root}/shared"]]
    assert bare.calls("apt-get") == [], "the client is there"
    bare.fake("mountpoint")
    assert bare.run(f"mount-{kind}.sh").returncode == 0
    assert len(bare.calls("mount")) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_system_that_is_late_is_waited_for(bare: Any, kind: str) -> None:
    deadline = mounts(bare, kind)
    bare.fails_at_first("mount", 2)
    assert bare.run(f"mount-{kind}.sh", **{deadline: "20"}).returncode == 0
    assert len(bare.calls("mount")) == 3
    assert bare.events() == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_system_that_never_comes_gives_the_node_up(bare: Any, kind: str) -> None:
    deadline = mounts(bare, kind)
    bare.fake("mount", "exit 32")
    assert bare.run(f"mount-{kind}.sh", **{deadline: "0"}).returncode == 1
    (event,) = bare.events()
    assert event["reason"] == f"cannot mount {KINDS[kind][0].source} at {bare.root}/shared within 0 s"
    assert bare.verbs() == ["recreateInstances"]


def test_a_mount_that_hangs_ends_with_the_deadline(bare: Any) -> None:
    deadline = mounts(bare, "lustre")
    bare.fake("mount", "exec sleep 60")
    assert bare.run("mount-lustre.sh", **{deadline: "1"}).returncode == 1
    assert bare.verbs() == ["recreateInstances"]


def test_lustres_client_comes_from_googles_repository_for_the_running_kernel(bare: Any) -> None:
    mounts(bare, "lustre")
    bare.fails_at_first("modprobe", 1)
    done = bare.run("mount-lustre.sh")
    assert done.returncode == 0, done.stderr
    packages = ["lustre-client-modules-6.8.0-1020-gcp", "lustre-client-utils"]
    assert [call[4:] for call in bare.calls("apt-get")] == [["update"], ["install", *packages]]
    assert bare.repository("lustre-client") == (
        "deb [signed-by=/usr/share/keyrings/lustre-client.gpg] "
        "https://us-apt.pkg.dev/projects/lustre-client-binaries lustre-client-ubuntu-noble main\n"
    )


NO_CLIENT = "[[ $* != *lustre-client-modules-6.8.0-1020-gcp* ]]"


def test_a_kernel_without_a_lustre_client_of_googles_gets_one_that_is_built_here(bare: Any) -> None:
    mounts(bare, "lustre")
    bare.fails_at_first("modprobe", 1)
    bare.fake("apt-get", NO_CLIENT)
    done = bare.run("mount-lustre.sh", LUSTRE_DEADLINE_SEC="0")
    assert done.returncode == 0, done.stderr
    assert "no prebuilt Lustre client for kernel 6.8.0-1020-gcp: building it" in done.stderr
    assert [call[4:] for call in bare.calls("apt-get")][2:] == [
        ["update"],
        ["install", "apt-transport-artifact-registry"],
        ["update"],
        ["install", "dkms", "linux-headers-6.8.0-1020-gcp"],
        ["install", "lustre-client-modules-dkms", "lustre-client-utils"],
    ]
    assert bare.repository("lustre-client-dkms") == (
        "deb [signed-by=/usr/share/keyrings/lustre-client-dkms.gpg] "
        "ar+https://us-apt.pkg.dev/projects/lustre-client-modules-dkms lustre-client-ubuntu-noble main\n"
    )
    assert bare.repository("artifact-registry").endswith("apt apt-transport-artifact-registry-stable main\n")
    assert bare.calls("mount")[0][:2] == ["-t", "lustre"]


@pytest.mark.parametrize(
    ("state", "why"),
    [("enabled", "; Secure Boot is on, which rejects modules built here"), ("disabled", "")],
)
def test_a_kernel_without_any_lustre_client_is_told(bare: Any, state: str, why: str) -> None:
    deadline = mounts(bare, "lustre")
    bare.fake("modprobe", "exit 1")
    bare.fake("apt-get", f"{NO_CLIENT} && [[ $* != *dkms* ]]")
    bare.fake("mokutil", f"echo SecureBoot {state}")
    assert bare.run("mount-lustre.sh", **{deadline: "0"}).returncode == 1
    (event,) = bare.events()
    assert event["reason"] == f"cannot install the Lustre client for kernel 6.8.0-1020-gcp within 0 s{why}"
    assert not (bare.root / "etc/apt/sources.list.d/lustre-client-dkms.list").exists(), "or apt's next update fails"
    assert (bare.root / "etc/apt/sources.list.d/lustre-client.list").exists()


def test_nfs_gets_its_client_where_it_is_missing(bare: Any) -> None:
    mounts(bare, "nfs")
    bare.without("mount.nfs")
    (bare.root / "fake/mount.nfs").unlink()
    assert bare.run("mount-nfs.sh").returncode == 0
    assert [call[4:] for call in bare.calls("apt-get")] == [["update"], ["install", "nfs-common"]]


@pytest.fixture
def slice_host(bare: Any, tpu_host: TpuHostSpec, tmp_path: Path) -> Any:
    """A TPU host whose runs are a folder of the bucket."""
    files = replace(tpu_host.file_system, mount_point=f"{tmp_path}/runs")  # type: ignore[type-var]  # it has one
    bare.gcp = replace(tpu_host, file_system=files, run_dir=f"{tmp_path}/runs/demo")
    return bare


def test_a_bucket_is_mounted_for_the_containers_user(slice_host: Any, tmp_path: Path) -> None:
    slice_host.fake("gcsfuse")
    assert slice_host.run("mount-bucket.sh").returncode == 0
    (call,) = slice_host.calls("gcsfuse")
    assert call[-2:] == ["gangway-records", f"{tmp_path}/runs"]
    options = dict(itertools.pairwise(call))
    owner = "0"  # a slice's container is root's
    assert (options["--only-dir"], options["--uid"], options["-o"]) == ("demo/shared", owner, "allow_other")
    assert options["--metadata-cache-ttl-secs"] == "0", "another host's checkpoint has to be seen"
    assert (tmp_path / "runs/demo").is_dir()
    slice_host.fake("mountpoint")
    assert slice_host.run("mount-bucket.sh").returncode == 0
    assert len(slice_host.calls("gcsfuse")) == 1


def test_the_buckets_client_is_installed_where_it_is_missing(slice_host: Any) -> None:
    slice_host.without("gcsfuse")
    slice_host.brings("gcsfuse", "gcsfuse")
    assert slice_host.run("mount-bucket.sh").returncode == 0
    assert slice_host.repository("gcsfuse") == (
        "deb [signed-by=/usr/share/keyrings/gcsfuse.gpg] https://packages.cloud.google.com/apt gcsfuse-noble main\n"
    )


def test_a_bucket_that_cannot_be_mounted_is_told(slice_host: Any) -> None:
    slice_host.fake("gcsfuse", "exit 1")
    assert slice_host.run("mount-bucket.sh", BUCKET_DEADLINE_SEC="0").returncode == 1
    (event,) = slice_host.events()
    assert event["reason"].startswith("cannot mount gs://gangway-records/demo/shared at ")


@pytest.fixture
def filler(gcp_machine: Any, tmp_path: Path) -> Any:
    """A machine on a shared file system that has nothing in it yet."""
    (tmp_path / "shared").mkdir()
    gcp_machine.plan(
        file_system=FileSystem("nfs", "10.0.0.3:/share", f"{tmp_path}/shared"),
        data=DataSource("gs://acme-data/celeba/", "copy"),
    )
    gcp_machine.gce.objects |= {
        "acme-data/celeba/index.json": b"{}",
        "acme-data/celeba/shards/0 ä.bin": bytes(range(256)) * 40,
        "acme-data/celeba/": b"",
        "acme-data/celeba-b/other": b"no",
    }
    return gcp_machine


def test_data_is_copied_by_whoever_gets_the_lock_and_once(
    filler: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Any] = []
    threads = [threading.Thread(target=lambda: done.append(filler.run("fill-data.sh"))) for _ in range(3)]
    filler.write_settings(None)
    # They are the same for all three, and none of them may read what another one is just writing.
    monkeypatch.setattr(filler, "write_settings", lambda head: None)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.returncode for each in done] == [0, 0, 0], done
    data = tmp_path / "shared/data"
    found = {str(path.relative_to(data)): path.read_bytes() for path in data.rglob("*") if path.is_file()}
    assert found == {"index.json": b"{}", "shards/0 ä.bin": bytes(range(256)) * 40}
    assert len([call for call in filler.gce.asked("storage") if "alt" in call.query]) == 2
    assert (tmp_path / "shared/.gangway-filled").read_text() == "gs://acme-data/celeba/\n"


def test_another_source_is_brought_anew(filler: Any, tmp_path: Path) -> None:
    (tmp_path / "shared/.gangway-filled").write_text("gs://acme-data/other\n")
    assert filler.run("fill-data.sh").returncode == 0
    assert (tmp_path / "shared/data/index.json").exists()


@pytest.mark.parametrize("how", ["refused", "nothing there"])
def test_data_that_another_try_would_not_bring_gives_the_node_up_at_once(
    filler: Any, gce: Any, tmp_path: Path, how: str
) -> None:
    """The deadline is four hours, in which the others would wait and cost."""
    if how == "refused":
        gce.denied.add("storage")
    else:
        gce.objects = {"acme-data/celebs/index.json": b"{}", "acme-data/celeba/": b""}
    assert filler.run("fill-data.sh", RIGHTS_GRACE_SEC="0").returncode == 1
    (event,) = filler.events()
    assert event["event"] == "node-given-up"
    why = "403: GET " if how == "refused" else "404: no objects below gs://acme-data/celeba/"
    assert event["reason"].startswith(f"cannot load gs://acme-data/celeba/: gangway: copy: {why}")
    assert not (tmp_path / "shared/.gangway-filled").exists()
    asked = [call for call in gce.asked("storage") if "breaker/" not in str(call.query)]
    assert len(asked) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["../../escaped", "a/../../../escaped", "/etc/cron.d/escaped", "a//b", "./a"])
def test_an_object_whose_name_leads_out_gives_the_node_up(filler: Any, gce: Any, tmp_path: Path, name: str) -> None:
    """Whoever writes the bucket would write anywhere on the node, as root."""
    gce.objects = {f"acme-data/celeba/{name}": b"* * * * * root id\n"}
    assert filler.run("fill-data.sh").returncode == 1
    (event,) = filler.events()
    assert event["event"] == "node-given-up"
    assert "is not a path below the folder" in event["reason"]
    assert not list(tmp_path.rglob("*escaped*"))
    assert not (tmp_path / "shared/.gangway-filled").exists()


def test_a_link_that_the_trainer_planted_is_not_followed(filler: Any, gce: Any, tmp_path: Path) -> None:
    """A job before this one owned the folder: its links lead the copy neither out of it nor over another file."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "index.json").write_text("root's own")
    data = tmp_path / "shared/data"
    data.mkdir()
    (data / "index.json").symlink_to(outside / "index.json")
    (data / ".index.json.part").symlink_to(outside / "index.json")
    (data / "shards").symlink_to(outside)
    gce.objects = {"acme-data/celeba/index.json": b"{}", "acme-data/celeba/shards/0.bin": b"x"}
    assert filler.run("fill-data.sh", FILL_DEADLINE_SEC="0").returncode == 1
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"index.json": "root's own"}
    assert (data / "index.json").read_text() == "{}"
    assert not (data / "index.json").is_symlink()


def test_rights_that_are_not_known_everywhere_yet_give_no_young_machine_up(
    filler: Any, gce: Any, tmp_path: Path
) -> None:
    """A right that `up` gives before it makes the machines may be minutes behind them."""
    filler.up_for(61.07)
    gce.denied.add("storage")

    def spread() -> None:
        while not gce.asked("storage"):
            time.sleep(0.01)
        gce.denied.clear()

    threading.Thread(target=spread, daemon=True).start()
    done = filler.run("fill-data.sh")
    assert done.returncode == 0, done.stderr
    assert "gangway: copy: 403: GET " in done.stderr
    assert filler.events() == []
    assert (tmp_path / "shared/data/index.json").exists()


def test_a_machine_that_is_no_longer_young_is_given_up(filler: Any, gce: Any) -> None:
    filler.up_for(600.01)
    gce.denied.add("storage")
    assert filler.run("fill-data.sh").returncode == 1
    assert [event["event"] for event in filler.events()] == ["node-given-up"]


def test_data_that_comes_in_half_is_tried_again(filler: Any, gce: Any, tmp_path: Path) -> None:
    gce.cut.add("acme-data/celeba/index.json")
    assert filler.run("fill-data.sh", FILL_DEADLINE_SEC="0").returncode == 1
    (event,) = filler.events()
    assert event["reason"].startswith(
        "cannot load gs://acme-data/celeba/ within 0 s: gangway: copy: celeba/index.json: "
    )
    gce.cut.clear()
    assert filler.run("fill-data.sh").returncode == 0
    assert (tmp_path / "shared/data/index.json").read_bytes() == b"{}"


def test_the_head_has_lustre_import_and_the_workers_wait(
    filler: Any, gce: Any, gcp_head: GcpHeadSpec, tmp_path: Path
) -> None:
    worker = filler.gcp
    filler.plan(data=DataSource("gs://acme-data/celeba", "head"))
    assert filler.run("fill-data.sh", FILL_DEADLINE_SEC="0").returncode == 1
    assert "the head has not loaded gs://acme-data/celeba within 0 s" in [line["reason"] for line in filler.events()]
    filler.gcp = replace(gcp_head, file_system=worker.file_system)
    (tmp_path / "import.json").write_text(IMPORT)
    # What an import brings, the stand-in does not.
    (tmp_path / "shared/data").mkdir()
    (tmp_path / "shared/data/index.json").touch()
    done = filler.run("fill-data.sh", IMPORT_FILE=f"{tmp_path}/import.json")
    assert done.returncode == 0, done.stderr
    first, *looks = gce.asked("lustre")
    assert (first.method, first.body) == ("POST", {"a": 1})
    assert {call.path for call in looks} == {"/lustre.googleapis.com/v1/projects/p/locations/z/operations/o"}
    assert len(looks) == 2
    filler.gcp = replace(worker, data=DataSource("gs://acme-data/celeba", "head"))
    assert filler.run("fill-data.sh", FILL_DEADLINE_SEC="0").returncode == 0


@pytest.mark.parametrize("error", [{"code": 7, "message": "no permission on gs://acme-data"}, None])
def test_an_import_that_brings_nothing_is_told_by_the_head_at_once(
    filler: Any, gce: Any, gcp_head: GcpHeadSpec, tmp_path: Path, error: Any
) -> None:
    filler.gcp = replace(gcp_head, file_system=filler.gcp.file_system)
    gce.import_error = error
    (tmp_path / "import.json").write_text(IMPORT)
    done = filler.run("fill-data.sh", IMPORT_FILE=f"{tmp_path}/import.json", RIGHTS_GRACE_SEC="0")
    assert done.returncode == 1
    (event,) = filler.events()
    assert event["event"] == "head-not-ready"
    why = (
        "gangway: import: 7: no permission on gs://acme-data"
        if error
        else "gangway: gs://acme-data/celeba has no files"
    )
    assert event["reason"].startswith(f"cannot load gs://acme-data/celeba: {why}")
    assert not (tmp_path / "shared/.gangway-filled").exists()
