"""The required signature of a stack's image, verified by each plan and again by each machine."""

from collections.abc import Iterator

from gangway.components.core.findings import InputError
from gangway.components.core.image_reference import ImageSignature, SignatureError, checked_signature, signed_name
from gangway.stacks.config.stack_config import StackConfig

_PLACE = "gangway:image.signature"


def signature_mistakes(config: StackConfig) -> Iterator[InputError]:
    """Mistakes of a valid section: no image to sign, or a wrong signature."""
    if config.image.signature is None:
        return
    if config.ready_image is None:
        yield InputError(
            _PLACE,
            "there is no signed image yet, since `up` builds it",
            allowed="only with image.prebuilt",
            fix="sign the output of `pulumi stack output image` with `cosign sign`, and write it as prebuilt",
        )
        return
    try:
        image_signature(config)
    except SignatureError as error:
        yield InputError(f"{_PLACE}.{error.part}", error.problem, allowed=error.allowed, fix=error.fix)


def image_signature(config: StackConfig) -> ImageSignature | None:
    """What machines verify, if anything. Raises SignatureError."""
    signed, image = config.image.signature, config.ready_image
    if signed is None or image is None or signed.public_key is None:
        return None
    return checked_signature(
        image,
        signed.public_key,
        signed.payload or "",
        signed.signature or "",
        signed.signed_as or signed_name(image),
    )
