#!/usr/bin/env bash
# verify-image.sh COMMAND...: looks whether the stack's key has signed the job's image, and becomes the command that runs
# it. What was signed is made up here of the digest that is about to run, byte for byte as cosign writes it: nothing of it
# is parsed, and what was signed of another image does not fit. Without a command it looks alone.
# Ends with 2 where the signature does not hold, which no other try changes; with 4 where this machine cannot look.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"

refuse() {
    log "$2"
    event image-refused reason "$2"
    exit "$1"
}

signed() {
    printf '{"critical":{"identity":{"docker-reference":"%s"},"image":{"docker-manifest-digest":"%s"},' \
        "$IMAGE_NAME" "${IMAGE#*@}"
    printf '"type":"cosign container image signature"},"optional":%s}' "$IMAGE_REMARKS"
}

command -v openssl >/dev/null || refuse 4 "no openssl on this machine, by which the signature of $IMAGE is looked at"
mkdir -p "$STATE_DIR"
if ! base64 -d <<<"$IMAGE_KEY" >"$STATE_DIR/image.key" || ! base64 -d <<<"$IMAGE_SIGNATURE" >"$STATE_DIR/image.sig" ||
    ! signed | openssl dgst -sha256 -keyform DER -verify "$STATE_DIR/image.key" -signature "$STATE_DIR/image.sig" >&2; then
    refuse 2 "the signature of $IMAGE does not hold by the key of image.signature: it is not run"
fi
[ $# -gt 0 ] || exit 0
[[ " $* " = *" $IMAGE "* ]] || refuse 2 "what is to be run is not $IMAGE, whose signature holds"
exec "$@"
