#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"

[ "$GPUS_PLANNED" -gt 0 ] || exit 0
seen=$(docker run --rm $GPU_ARGUMENTS --entrypoint nvidia-smi "$IMAGE" --list-gpus 2>&1) ||
    give_up "no GPU in a container: install NVIDIA's container toolkit and configure it for $CONTAINER_ENGINE; $seen"
[ "$(grep -c '^GPU ' <<<"$seen")" -ge "$GPUS_PLANNED" ] ||
    give_up "a container sees $(grep -c '^GPU ' <<<"$seen") GPUs, $GPUS_PLANNED planned"
