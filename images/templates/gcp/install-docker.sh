#!/usr/bin/env bash
# Installs Docker and, with GPUs, NVIDIA's container toolkit, which Canonical's images lack, and holds their versions.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_DOCKER_DEADLINE_SEC:-900}
HOLD_SEC=${GANGWAY_HOLD_SEC:-120}

install_docker() {
    command -v docker >/dev/null || { apt_get update && apt_get install docker.io; }
}

# NVIDIA's guide "Installing the NVIDIA Container Toolkit", with apt. The fingerprint is from Google's scripts for Dataproc
# (initialization-actions, gpu/install_gpu_driver.sh).
install_toolkit() {
    command -v nvidia-ctk >/dev/null && return
    apt_source nvidia-container-toolkit https://nvidia.github.io/libnvidia-container/gpgkey \
        "https://nvidia.github.io/libnvidia-container/stable/deb/$(dpkg --print-architecture) /" "" \
        C95B321B61E88C1809C4F759DDCAE044F796ECB0 &&
        apt_get update && apt_get install nvidia-container-toolkit
}

# A new driver's libraries do not fit the loaded module, and a new docker stops its containers.
hold() {
    local packages
    mapfile -t packages < <(
        dpkg-query --show --showformat '${db:Status-Abbrev}${binary:Package}\n' \
            'linux-*' '*nvidia*' docker.io containerd runc 2>/dev/null | sed -n 's/^[hi]i *//p'
    )
    [ "${#packages[@]}" = 0 ] || apt-mark hold "${packages[@]}" >/dev/null
}

configure_toolkit() { nvidia-ctk runtime configure --runtime=docker && systemctl restart docker.service; }

retry "$DEADLINE_SEC" install_docker || give_up "cannot install docker within $DEADLINE_SEC s"
if [ "$GPUS_PLANNED" -gt 0 ]; then
    retry "$DEADLINE_SEC" install_toolkit || give_up "cannot install NVIDIA's container toolkit within $DEADLINE_SEC s"
    configure_toolkit || give_up "cannot configure NVIDIA's runtime for docker"
fi
systemctl start docker.service || give_up "docker does not start"
# Another program may have dpkg's lock.
retry "$HOLD_SEC" hold || log "cannot hold packages: an upgrade may break a running job"
