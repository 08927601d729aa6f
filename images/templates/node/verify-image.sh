#!/usr/bin/env bash
# verify-image.sh [COMMAND...]: verifies the signature of the job's image, then executes the command that runs it. The signed
# payload is rebuilt from the image's digest, byte for byte as by cosign, and never parsed.
# Exits with 2 if the signature is invalid, 4 if this machine cannot verify it.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"

refuse() {
    log "$2"
    event image-refused reason "$2"
    exit "$1"
}

signed_payload() {
    printf '{"critical":{"identity":{"docker-reference":"%s"},"image":{"docker-manifest-digest":"%s"},' \
        "$IMAGE_NAME" "${IMAGE#*@}"
    printf '"type":"cosign container image signature"},"optional":%s}' "$IMAGE_REMARKS"
}

command -v openssl >/dev/null || refuse 4 "no openssl to verify the signature of $IMAGE"
mkdir -p "$STATE_DIR"
if ! base64 -d <<<"$IMAGE_KEY" >"$STATE_DIR/image.key" || ! base64 -d <<<"$IMAGE_SIGNATURE" >"$STATE_DIR/image.sig" ||
    ! signed_payload | openssl dgst -sha256 -keyform DER -verify "$STATE_DIR/image.key" -signature "$STATE_DIR/image.sig" >&2; then
    refuse 2 "the signature of $IMAGE is invalid for the key of image.signature: not running it"
fi
[ $# -gt 0 ] || exit 0
[[ " $* " = *" $IMAGE "* ]] || refuse 2 "the command does not run $IMAGE, whose signature is valid"
exec "$@"
