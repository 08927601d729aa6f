#!/usr/bin/env bash
# Installs or removes a stack's files and services on this machine. Runs, data and records always stay.
#   installer.sh install SHA256 NAME   checksum of this file, to detect an incomplete copy; NAME of the machine
#   installer.sh remove NAME           does nothing if it is installed under another name
set -euo pipefail
ROOT=${GANGWAY_ROOT:-}
OWN=$ROOT/opt/gangway

say() { printf 'gangway: %s\n' "$*" >&2; }

# problems: a line for each missing requirement, checked before anything is written.
problems() {
    local owner
    [ "$(id -u)" = 0 ] || echo "not root: use root, or a user whose sudo needs no password"
    command -v systemctl >/dev/null || echo "no systemd, which starts and stops the trainer"
    [ "$(uname -m)" = x86_64 ] || echo "a $(uname -m) machine: the trainer's image is x86_64"
    if [ -z "$ENGINE_HINT" ]; then
        :
    elif [ ! -x "$ROOT/usr/bin/docker" ]; then
        echo "no /usr/bin/docker: $ENGINE_HINT"
    elif ! docker info >/dev/null 2>&1; then
        echo "docker info fails: start or fix the container engine"
    fi
    local need
    for need in "${NEEDS[@]}"; do
        command -v "${need%%:*}" >/dev/null || echo "no ${need%%:*}: ${need#*: }"
    done
    for need in "${REFUSED[@]}"; do
        [ ! -e "$ROOT${need%%:*}" ] || echo "$need"
    done
    owner=$(cat "$OWN/stack" 2>/dev/null) || owner=$STACK
    [ "$owner" = "$STACK" ] || echo "this machine belongs to stack $owner: destroy that stack first"
}

# put PATH MODE: standard input as that file, which appears whole.
put() {
    mkdir -p "$(dirname "$ROOT$1")"
    cat >"$ROOT$1.gangway-new"
    chmod "$2" "$ROOT$1.gangway-new"
    mv "$ROOT$1.gangway-new" "$ROOT$1"
}

# listed NAME: what the installation that is here wrote down under that name.
listed() { cat "$OWN/$1" 2>/dev/null || true; }

# stop_services: of what is here; the trainer saves a checkpoint first.
stop_services() {
    local units
    mapfile -t units < <(listed services)
    [ "${#units[@]}" = 0 ] || systemctl disable --now "${units[@]}" gangway-prepare.service || say "some services did not exist"
}

# drop_files PATH...: and our own folders that are empty then.
drop_files() {
    local path
    for path in "$@"; do
        rm -f "$ROOT$path"
    done
    find "$OWN" "$ROOT/etc/gangway" -depth -type d -empty -delete 2>/dev/null || true
}

uninstall() {
    local paths container script
    stop_services
    for container in gangway-trainer gangway-rendezvous gangway-prometheus; do
        docker rm --force "$container" >/dev/null 2>&1 || true
    done
    for script in close-ports.sh join-wireguard.sh close-metadata.sh; do
        [ ! -e "$OWN/bin/$script" ] || GANGWAY_NODE_ENV=$ROOT/etc/gangway/node.env bash "$OWN/bin/$script" remove ||
            say "cannot undo $script"
    done
    mapfile -t paths < <(listed files)
    drop_files "${paths[@]}" /opt/gangway/{services,files,digest,installer.sh,name,stack}
    # That the job has ended here is forgotten with it, and the trainer's copy of its member key.
    rm -rf "$ROOT/run/gangway" "$ROOT"/run/gangway-member.pem{,.new}
    systemctl daemon-reload
}

put_all() {
    local before path
    mapfile -t before < <(listed files)
    mkdir -p "$OWN"
    # Written down first: whatever happens from here on, `remove` knows what there may be.
    printf '%s\n' "$STACK" >"$OWN/stack"
    printf '%s\n' "${before[@]}" "${FILES[@]}" | sed '/^$/d' | sort -u >"$OWN/files"
    printf '%s\n' "${SERVICES[@]}" >"$OWN/services"
    write_files
    for path in "${before[@]}"; do
        [[ " ${FILES[*]} " == *" $path "* ]] || drop_files "$path"
    done
    printf '%s\n' "${FILES[@]}" >"$OWN/files"
}

install_all() {
    local found
    [ "$(sha256sum <"$0" | cut -d' ' -f1)" = "$1" ] || { say "this copy is incomplete: run pulumi up again"; exit 1; }
    found=$(problems)
    if [ -n "$found" ]; then
        say "this machine is not ready; nothing was changed:"
        while read -r line; do say "  $line"; done <<<"$found"
        exit 1
    fi
    if [ "$(listed digest)" = "$1" ]; then
        printf '%s\n' "$2" >"$OWN/name"
        say "nothing to do: stack $STACK is up to date"
        return
    fi
    trap 'say "installation failed and was undone"; uninstall' EXIT
    stop_services
    # A job that has ended may go on with other settings, more hours say, and its hours here count anew.
    rm -rf "$ROOT/run/gangway"
    put_all
    [ "$0" -ef "$OWN/installer.sh" ] || install -m 0700 "$0" "$OWN/installer.sh"
    systemctl daemon-reload
    systemctl enable "${SERVICES[@]}"
    systemctl start --no-block "${SERVICES[@]}"
    printf '%s\n' "$2" >"$OWN/name"
    printf '%s\n' "$1" >"$OWN/digest"
    trap - EXIT
    say "stack $STACK is installed: ${#FILES[@]} files, ${#SERVICES[@]} services"
}

remove_all() {
    if [ "$(listed stack) $(listed name)" != "$STACK $1" ]; then
        say "stack $STACK is not installed under the name $1"
        return
    fi
    uninstall
    say "stack $STACK is removed; runs and data remain"
}

main() {
    case ${1:-} in
    install) install_all "$2" "$3" ;;
    remove) remove_all "$2" ;;
    *)
        say "usage: installer.sh install SHA256 NAME | remove NAME"
        exit 2
        ;;
    esac
}

ENGINE_HINT='install podman and podman-docker, which installs podman there'
STACK=lab

FILES=(
    /etc/gangway/job.json
    /etc/gangway/job.env
    /etc/gangway/node.env
    /opt/gangway/bin/common.sh
    /opt/gangway/bin/cloud.sh
    /opt/gangway/bin/pull-image.sh
    /opt/gangway/bin/check-shared.sh
    /opt/gangway/bin/close-metadata.sh
    /opt/gangway/bin/run-trainer.sh
    /opt/gangway/bin/upload-record.sh
    /opt/gangway/bin/leave-node.sh
    /opt/gangway/bin/watch-node.sh
    /opt/gangway/lib/gangway/images/node/outbox.py
    /etc/gangway/train.json
    /etc/systemd/system/gangway-prepare.service
    /etc/systemd/system/gangway-metadata.service
    /etc/systemd/system/gangway-trainer.service
    /etc/systemd/system/gangway-watch.timer
    /etc/systemd/system/gangway-watch.service
)

NEEDS=(
    'python3: install Python 3.9 or later, which reads the run'"'"'s record'
)

REFUSED=(
)

SERVICES=(
    gangway-metadata.service
    gangway-trainer.service
    gangway-watch.timer
)

write_files() {
put /etc/gangway/job.json 0600 <<'GANGWAY_FILE'
{
 "name": "dcgan-celeba64",
 "image": "123456789012.dkr.ecr.us-east-2.amazonaws.com/gangway-trainer@sha256:abababababababababababababababababababababababababababababababab",
 "backend": "gloo",
 "num_nodes_min": 2,
 "num_nodes_max": 4,
 "processes_per_node": 8,
 "rendezvous": {
  "host": "head.gangway.internal",
  "port": 29400,
  "standalone": false
 },
 "volumes": [],
 "env": {},
 "module": "gangway.trainer",
 "training": {
  "config": {
   "preset": "dcgan-celeba64"
  },
  "config_file": "/etc/gangway/train.json",
  "run_dir": "/fsx/runs/dcgan-celeba64",
  "data_dir": "",
  "metrics_port": null,
  "log_format": "text",
  "fabric_min_gbps": null,
  "controller": null,
  "options": []
 },
 "run_id": "",
 "max_restarts": 3,
 "shutdown_timeout_sec": 25
}
GANGWAY_FILE
put /etc/gangway/job.env 0600 <<'GANGWAY_FILE'
DOCKER_ARGV=(
    run
    --rm
    --init
    --name
    gangway-trainer
    --network
    host
    --ipc
    host
    --ulimit
    memlock=-1
    --ulimit
    nofile=131072
    --cap-drop
    ALL
    --security-opt
    no-new-privileges
    --read-only
    --tmpfs
    /tmp:rw,exec,nosuid,nodev,mode=1777
    --pids-limit
    32768
    --env
    HOME=/tmp
    --user
    10001:10001
    --env
    USER=10001
    --log-driver
    none
    --mount
    type=bind,source=/etc/gangway/train.json,target=/etc/gangway/train.json,readonly
    123456789012.dkr.ecr.us-east-2.amazonaws.com/gangway-trainer@sha256:abababababababababababababababababababababababababababababababab
    --job-dir
    /var/lib/gangway/runs/lab/.launch/1a4304d023e2
    --nnodes=2:4
    --rdzv-backend=gangway
    --rdzv-endpoint=head.gangway.internal:29400
    --rdzv-id=dcgan-celeba64
    --rdzv-conf=is_host=0,last_call_timeout=3,keep_alive_interval=3
    --nproc-per-node=8
    --max-restarts=3
    --shutdown-timeout=25
    -m
    gangway.trainer
    train
    --config
    /etc/gangway/train.json
    --run-dir
    /fsx/runs/dcgan-celeba64
)
GANGWAY_FILE
put /etc/gangway/node.env 0600 <<'GANGWAY_FILE'
BUCKET_URI=/srv/results/lab
CONTAINER_ENGINE=podman
CONTAINER_NAME=gangway-trainer
DATA_DIR=''
GPUS_PLANNED=0
GPU_ARGUMENTS=''
HEALTH_CHECKS=''
IMAGE=123456789012.dkr.ecr.us-east-2.amazonaws.com/gangway-trainer@sha256:abababababababababababababababababababababababababababababababab
IMAGE_REGISTRY=registry.example.com
JOB_KEY=1a4304d023e2
JOB_NAME=dcgan-celeba64
LOG_GROUP=journal
MAX_SEC=''
RESULTS_AT_END=''
RESULTS_SEC=''
ROLE=worker
RUN_DIR=/var/lib/gangway/runs/lab
RUN_ID=''
SHARED_DIR=''
STACK=lab
TERMINATE_WHEN_DONE=''
TRAINER_UID=10001
TRIES_AGAIN=yes
GANGWAY_FILE
put /opt/gangway/bin/common.sh 0755 <<'GANGWAY_FILE'
@common-c0d5757b.sh.txt 0
put /opt/gangway/bin/cloud.sh 0755 <<'GANGWAY_FILE'
@cloud-746f9eb4.sh.txt 0
put /opt/gangway/bin/pull-image.sh 0755 <<'GANGWAY_FILE'
@pull-image-f9ed88b1.sh.txt 0
put /opt/gangway/bin/check-shared.sh 0755 <<'GANGWAY_FILE'
@check-shared-5128a0cd.sh.txt 0
put /opt/gangway/bin/close-metadata.sh 0755 <<'GANGWAY_FILE'
@close-metadata-ce5da31f.sh.txt 0
put /opt/gangway/bin/run-trainer.sh 0755 <<'GANGWAY_FILE'
@run-trainer-596e280a.sh.txt 0
put /opt/gangway/bin/upload-record.sh 0755 <<'GANGWAY_FILE'
@upload-record-0e7b1be4.sh.txt 0
put /opt/gangway/bin/leave-node.sh 0755 <<'GANGWAY_FILE'
@leave-node-2441dfba.sh.txt 0
put /opt/gangway/bin/watch-node.sh 0755 <<'GANGWAY_FILE'
@watch-node-e822b97b.sh.txt 0
put /opt/gangway/lib/gangway/images/node/outbox.py 0644 <<'GANGWAY_FILE'
@outbox-63e91e53.py.txt 0
put /etc/gangway/train.json 0644 <<'GANGWAY_FILE'
{
 "preset": "dcgan-celeba64"
}
GANGWAY_FILE
put /etc/systemd/system/gangway-prepare.service 0644 <<'GANGWAY_FILE'
@gangway-prepare-3db9b1fc.service.txt 0
put /etc/systemd/system/gangway-metadata.service 0644 <<'GANGWAY_FILE'
@gangway-metadata-9cdfeffb.service.txt 0
put /etc/systemd/system/gangway-trainer.service 0644 <<'GANGWAY_FILE'
@gangway-trainer-c6cbc30c.service.txt 0
put /etc/systemd/system/gangway-watch.timer 0644 <<'GANGWAY_FILE'
@gangway-watch-5b618a86.timer.txt 0
put /etc/systemd/system/gangway-watch.service 0644 <<'GANGWAY_FILE'
@gangway-watch-98a7c772.service.txt 0
}

main "$@"
exit
