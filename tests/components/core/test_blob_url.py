"""Addresses of blob storage: every part, and the same grammar in the trainer, which imports none of this."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.blob_url import BlobUrl, read_blob_url
from gangway.components.core.findings import InputError
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.sources import split_url


@given(
    st.from_regex(r"\A[a-z0-9]{3,24}\Z"),
    st.from_regex(r"\A[a-z0-9]{3,20}\Z"),
    st.lists(st.from_regex(r"\A[a-z0-9][a-z0-9.]{0,7}\Z"), max_size=3),
    st.sampled_from(["", "/"]),
)
def test_a_place_in_blob_storage_has_its_parts(account: str, container: str, folders: list[str], end: str) -> None:
    url = "/".join([f"az://{account}/{container}", *folders]) + end
    assert read_blob_url(url) == BlobUrl(account, container, "/".join(folders))
    assert split_url(url) == ("az", account, "/".join([container, *folders]))


@pytest.mark.parametrize(
    "url",
    [
        "s3://b/p",
        "az://mydata",
        "az://My/data",
        "az://ab/data",
        "az://mydata/a--b",
        "az://mydata/UP",
        "az://mydata/ab",
        "az://mydata/" + "a-" * 32 + "a",
        "az://mydata/images/../runs",
        "az://mydata/images/./celeba",
        "az://mydata/images//celeba",
        "az://mydata/images/celeba//",
        "https://x/y",
        "",
    ],
)
def test_what_is_no_place_is_refused(url: str) -> None:
    with pytest.raises(InputError) as caught:
        read_blob_url(url)
    assert caught.value.place == "gangway:storage.source"
    assert read_blob_url(caught.value.fix.removeprefix("write it like ")).account == "mydata"
    if url.startswith("az://"):
        with pytest.raises(TrainerError, match="not a place in Azure's blob storage") as refused:
            split_url(url)
        assert refused.value.allowed == caught.value.allowed


@pytest.mark.parametrize("container", ["a-b", "abc", "a-" * 31 + "a", "a" * 63])
def test_containers_of_every_length_that_azure_takes(container: str) -> None:
    assert read_blob_url(f"az://mydata/{container}/x").container == container
