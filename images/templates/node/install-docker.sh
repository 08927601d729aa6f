#!/usr/bin/env bash
# Docker, where the image lacks it: images for GPUs bring it with NVIDIA's toolkit, a plain Ubuntu for the head does not.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_DOCKER_DEADLINE_SEC:-900}

install_docker() { command -v docker >/dev/null || { apt_get update && apt_get install docker.io; }; }

retry "$DEADLINE_SEC" install_docker || give_up "cannot install docker within $DEADLINE_SEC s"
systemctl start docker.service || give_up "docker does not start"
if [ "${GPUS_PLANNED:-0}" -gt 0 ] && ! docker info --format '{{json .Runtimes}}' | grep -q nvidia; then
    command -v nvidia-ctk >/dev/null || give_up "the image has no NVIDIA container toolkit"
    { nvidia-ctk runtime configure --runtime=docker && systemctl restart docker.service; } ||
        give_up "cannot configure NVIDIA's runtime for docker"
fi
