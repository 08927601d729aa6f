"""TrainerImage: the trainer's container image, built by BuildKit during `up` (never on preview), known by its digest.

The Dockerfile comes from `gangway.images.render`; the registry with user and password may be ECR, Artifact Registry or
ACR. BuildKit's provenance attestation needs the docker-buildx program (`exec`): the provider's library disables it. The
provider has no `--sbom` (pulumi/pulumi-docker-build issue 73), so the Dockerfile writes the SBOM to
/opt/venv/sbom.cdx.json.
"""

from typing import TypedDict

import pulumi
import pulumi_docker_build as docker_build

__all__ = ["CACHE_TAG", "CONTENT_PREFIX", "RegistryLogin", "TrainerImage", "TrainerImageArgs"]

CACHE_TAG = "buildcache"
"""The tag of cached layers, overwritten by each build: exempt it from tag immutability."""

CONTENT_PREFIX = "content-"
"""Prefix of tags that name the content and not the build. Two builds of one content differ in digest, since they
contain times, and an `up` interrupted between push and state builds again: exempt these tags too.
"""


class RegistryLogin(TypedDict):
    """Credentials for pushing: registry host, user, and a password that stays secret in the state."""

    address: pulumi.Input[str]
    username: pulumi.Input[str]
    password: pulumi.Input[str]


class TrainerImageArgs(TypedDict):
    """Inputs of TrainerImage. `context` is a folder with a .dockerignore; `tag` must be new for new content. The
    registry must allow a tag to be pushed twice, as ImageRegistry does for CONTENT_PREFIX.
    """

    repository_url: pulumi.Input[str]
    registry: RegistryLogin
    dockerfile: str
    context: str
    platform: str
    tag: str


class TrainerImage(pulumi.ComponentResource):
    """An image in a registry, with a build cache beside it."""

    image: pulumi.Output[str]
    digest: pulumi.Output[str]

    def __init__(self, name: str, args: TrainerImageArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:image:TrainerImage", name, None, opts)
        repository = pulumi.Output.from_input(args["repository_url"])
        cache = repository.apply(lambda url: f"{url}:{CACHE_TAG}")
        built = docker_build.Image(
            f"{name}-trainer",
            push=True,
            exec_=True,
            build_on_preview=False,
            context=docker_build.BuildContextArgs(location=args["context"]),
            dockerfile=docker_build.DockerfileArgs(inline=args["dockerfile"]),
            build_args={"REVISION": args["tag"]},
            platforms=[docker_build.Platform(args["platform"])],
            tags=[repository.apply(lambda url: f"{url}:{args['tag']}")],
            registries=[
                docker_build.RegistryArgs(
                    address=args["registry"]["address"],
                    username=args["registry"]["username"],
                    password=pulumi.Output.secret(args["registry"]["password"]),
                )
            ],
            cache_from=[docker_build.CacheFromArgs(registry=docker_build.CacheFromRegistryArgs(ref=cache))],
            cache_to=[
                docker_build.CacheToArgs(
                    registry=docker_build.CacheToRegistryArgs(
                        ref=cache,
                        mode=docker_build.CacheMode.MAX,
                        # ECR stores a cache only as an image manifest of OCI media types.
                        image_manifest=True,
                        oci_media_types=True,
                    )
                )
            ],
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.digest = built.digest
        self.image = pulumi.Output.concat(repository, "@", built.digest)
        self.register_outputs({"image": self.image, "digest": self.digest})
