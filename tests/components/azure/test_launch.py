"""What machines are made with: images as they are written, guarded boots, first-boot files that fit."""

import base64
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.azure.launch import (
    MAX_CUSTOM_DATA_BYTES,
    MODULUS,
    Image,
    authorized_keys,
    check_custom_data,
    is_hpc_image,
    nobodys_key,
    plan_image,
    plan_security,
)
from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import AzureMachineType
from gangway.components.core.findings import InputError

H100, A100, NC = "Standard_ND96isr_H100_v5", "Standard_ND96asr_v4", "Standard_NC24ads_A100_v4"
SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
COMPUTE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/g/providers/Microsoft.Compute"
GALLERY = f"{COMPUTE}/galleries/ours/images/hpc/versions/1.0.0"


def machine(name: str, **facts: Any) -> AzureMachineType:
    """A machine of the catalogue, with other facts where they are given."""
    known = cast("AzureMachineType", load_provider("azure").machine(name))
    changed = {key: getattr(known, key).model_copy(update={"value": value}) for key, value in facts.items()}
    return known.model_copy(update=changed)


def test_images_as_they_are_written() -> None:
    hpc = Image(publisher="microsoft-dsvm", offer="ubuntu-hpc", sku="2404", version="latest")
    assert plan_image("microsoft-dsvm:ubuntu-hpc:2404") == hpc
    assert plan_image("microsoft-dsvm:ubuntu-hpc:2404:latest") == hpc
    assert plan_image("microsoft-dsvm:ubuntu-hpc:2404:22.04.2025041101").version == "22.04.2025041101"
    assert plan_image(GALLERY) == Image(id=GALLERY)
    assert plan_image("/CommunityGalleries/c/Images/i").community_gallery_image_id == "/CommunityGalleries/c/Images/i"
    assert plan_image("/SharedGalleries/s/Images/i").shared_gallery_image_id == "/SharedGalleries/s/Images/i"


@pytest.mark.parametrize(
    "image",
    [
        "", "ami-0123456789abcdef0", "ubuntu-hpc", "a:b", "a:b:c:newest", "a:b:c:1.0", "/SharedGalleries/s/i",
        "/subscriptions/s/foo", f"/subscriptions/{SUBSCRIPTION}/resourceGroups/g/foo",
        GALLERY.replace("/versions/1.0.0", "/versions/new"),
    ],
)  # fmt: skip
def test_no_image(image: str) -> None:
    with pytest.raises(InputError, match="can be called so") as caught:
        plan_image(image, "gangway:cluster.image_id")
    assert caught.value.place == "gangway:cluster.image_id"


@pytest.mark.parametrize(
    ("image", "hpc"),
    [
        (None, True),
        ("microsoft-dsvm:ubuntu-hpc:2404", True),
        ("Microsoft-DSVM:Ubuntu-HPC:2404:24.04.2026072901", True),
        ("microsoft-dsvm:ubuntu-2204:2204-gen2:latest", False),
        (GALLERY, False),
    ],
)
def test_the_hpc_image_is_one_whatever_its_version(image: str | None, hpc: bool) -> None:
    assert is_hpc_image(image) is hpc


def test_every_machines_image_is_one() -> None:
    machines = cast("list[AzureMachineType]", list(load_provider("azure").machines.values()))
    images = [one.image.value for one in machines if one.image.value is not None]
    assert len(images) > 5
    assert all(plan_image(image).publisher == "microsoft-dsvm" for image in images)


def test_a_guarded_boot_where_the_size_takes_it() -> None:
    security = plan_security(machine(H100), own_image=False)
    assert (security.trusted_launch, security.secure_boot, security.encryption_at_host) == (True, False, True)
    assert "signed by nobody" in security.why_no_secure_boot
    older = plan_security(machine(A100), own_image=False)
    assert (older.trusted_launch, older.secure_boot) == (False, False)
    assert older.why_no_secure_boot == "only with Trusted Launch"


def test_an_own_image_without_infiniband_is_checked_and_one_with_it_when_its_owner_says_so() -> None:
    assert plan_security(machine(NC), own_image=True).secure_boot is True
    assert plan_security(machine(NC), own_image=True, secure_boot=False).why_no_secure_boot == "as written"
    assert plan_security(machine(H100), own_image=True).secure_boot is False
    assert plan_security(machine(H100), own_image=True, secure_boot=True).secure_boot is True


def test_what_nobody_says_anything_about() -> None:
    unsaid = machine(H100, trusted_launch=None, encryption_at_host=None)
    security = plan_security(unsaid, own_image=False)
    assert (security.trusted_launch, security.encryption_at_host) == (False, True)
    asked = plan_security(unsaid, own_image=False, trusted_launch=True, encryption_at_host=False)
    assert (asked.trusted_launch, asked.encryption_at_host) == (True, False)


@pytest.mark.parametrize(
    ("name", "wanted", "place"),
    [
        (A100, {"trusted_launch": True}, "trusted_launch"),
        (A100, {"secure_boot": True}, "secure_boot"),
        (H100, {"secure_boot": True}, "secure_boot"),
    ],
)
def test_what_there_is_not_is_refused(name: str, wanted: dict[str, Any], place: str) -> None:
    with pytest.raises(InputError) as caught:
        plan_security(machine(name), own_image=False, **wanted)
    assert (caught.value.place, caught.value.fix) == (place, f"remove {place}")
    with pytest.raises(InputError) as caught:
        plan_security(machine(name), own_image=False, place="gangway:azure.", **wanted)
    assert (caught.value.place, caught.value.fix) == (f"gangway:azure.{place}", f"remove {place}")


@given(st.booleans(), st.sampled_from([None, False, True]), st.sampled_from([None, False, True]))
def test_secure_boot_only_with_trusted_launch_and_a_reason_whenever_it_is_off(
    own_image: bool, trusted_launch: bool | None, secure_boot: bool | None
) -> None:
    for name in (H100, A100, NC):
        wanted: dict[str, Any] = {"trusted_launch": trusted_launch, "secure_boot": secure_boot}
        try:
            security = plan_security(machine(name), own_image=own_image, **wanted)
        except InputError:
            continue
        assert security.trusted_launch or not security.secure_boot
        assert security.secure_boot is (security.why_no_secure_boot == "")
        assert security.secure_boot is not False or secure_boot is not True


def test_first_boot_files_that_fit() -> None:
    largest = base64.b64encode(b"#" * MAX_CUSTOM_DATA_BYTES).decode()
    assert check_custom_data(largest) == largest
    with pytest.raises(InputError, match="too long") as caught:
        check_custom_data(base64.b64encode(b"#" * (MAX_CUSTOM_DATA_BYTES + 1)).decode())
    assert caught.value.value == "65536 bytes"
    with pytest.raises(InputError, match="no base64"):
        check_custom_data("#cloud-config")


def test_the_administrator_has_the_key_of_no_use() -> None:
    path, key = authorized_keys()
    assert path == "/home/gangway/.ssh/authorized_keys"
    assert key.startswith("ssh-rsa ")


@pytest.mark.parametrize(
    ("name", "gib", "temporary"),
    [
        ("Standard_NC24ads_A100_v4", 960, False),
        ("Standard_NC48ads_A100_v4", 1920, False),
        ("Standard_NC96ads_A100_v4", 3840, False),
        ("Standard_NV36ads_A10_v5", 1440, True),
    ],
)
def test_scratch_is_the_disks_that_a_size_really_has(name: str, gib: int, temporary: bool) -> None:
    """NVMe beside a small temporary disk, or that one alone: Microsoft's tables of local storage."""
    found = machine(name)
    assert (found.instance_store_gib.value, found.temporary_disk) == (gib, temporary)
    assert "NVMe" in found.instance_store_gib.source or temporary


def test_ssh_reads_it_and_azure_takes_its_length() -> None:
    key = load_ssh_public_key(nobodys_key().encode())
    assert isinstance(key, RSAPublicKey)
    assert key.key_size == 2048
    assert (key.public_numbers().n, key.public_numbers().e) == (MODULUS, 65537)


def test_its_modulus_is_the_challenges() -> None:
    """RSA Laboratories gave the number of digits and their sum, so that a slip shows."""
    digits = str(MODULUS)
    assert (len(digits), sum(map(int, digits))) == (617, 2738)
    assert pow(3, MODULUS - 1, MODULUS) != 1, "no prime: then anybody would have the private half"
