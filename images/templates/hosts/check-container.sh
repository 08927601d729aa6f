#!/usr/bin/env bash
# Checks that containers see all planned GPUs: without NVIDIA's container toolkit the job would start, and fail.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"

[ "$GPUS_PLANNED" -gt 0 ] || exit 0
# shellcheck disable=SC2086 # words
seen=$(docker run --rm $GPU_ARGUMENTS --entrypoint nvidia-smi "$IMAGE" --list-gpus 2>&1) ||
    give_up "no GPU in a container: install NVIDIA's container toolkit and configure it for $CONTAINER_ENGINE; $seen"
[ "$(grep -c '^GPU ' <<<"$seen")" -ge "$GPUS_PLANNED" ] ||
    give_up "a container sees $(grep -c '^GPU ' <<<"$seen") GPUs, $GPUS_PLANNED planned"
