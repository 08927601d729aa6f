"""Values that wait: they stay what they are, and carry the order of creation into whatever takes them."""

from collections.abc import Callable
from typing import Any

import pulumi
import pytest
from pulumi_aws import iam, s3

from components.aws.order import after


@pytest.fixture
def made(declare: Callable[..., Any]) -> Any:
    """A role that takes a bucket's name, which waits for a versioning and for an output of another bucket."""

    def program() -> None:
        bucket, other = s3.Bucket("b"), s3.Bucket("other")
        versioning = s3.BucketVersioning("b", bucket=bucket.id, versioning_configuration={"status": "Enabled"})
        waiting: pulumi.Output[str] = after(bucket.bucket, versioning, other.arn)
        plain: pulumi.Output[str] = after("r2")
        iam.Role("r", name=waiting, assume_role_policy="{}")
        iam.Role("plain", name=plain, assume_role_policy="{}")

    return declare(program)


def test_the_value_is_not_changed(made: Any) -> None:
    names = [role.inputs["name"] for role in made.of("Role")]
    assert names == ["r2", "${Bucket.b.bucket}"]


def test_whatever_takes_it_comes_after_the_others_and_so_goes_before_them(made: Any) -> None:
    plain, role = made.of("Role")
    assert plain.dependencies == frozenset()
    urns = {r.urn for r in [*made.of("Bucket"), *made.of("BucketVersioning")]}
    assert role.dependencies == urns


def test_a_value_that_a_preview_knows_stays_known() -> None:
    """An id is unknown until `up`; waiting for it would show every plan as full of unknowns."""

    class Cloud(pulumi.runtime.Mocks):
        def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
            return None, args.inputs

        def call(self, args: pulumi.runtime.MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:
            return {}, None

    known: list[bool] = []
    pulumi.runtime.set_mocks(Cloud(), preview=True)

    async def note(value: pulumi.Output[str]) -> None:
        known.append(await value.is_known())

    @pulumi.runtime.test  # type: ignore[untyped-decorator]  # the SDK's decorator has no types
    def program() -> pulumi.Output[None]:
        bucket = s3.Bucket("b", bucket="chosen")
        return pulumi.Output.from_input(note(after("value", bucket)))

    program()
    assert known == [True]
