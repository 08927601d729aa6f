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

ENGINE_HINT='install Docker Engine from docker.com or your distribution'
STACK=lab

FILES=(
    /etc/gangway/job.json
    /etc/gangway/job.env
    /etc/gangway/node.env
    /opt/gangway/bin/common.sh
    /opt/gangway/bin/cloud.sh
    /opt/gangway/bin/check-gpu.sh
    /opt/gangway/bin/close-ports.sh
    /opt/gangway/bin/pull-image.sh
    /opt/gangway/bin/check-container.sh
    /opt/gangway/bin/check-shared.sh
    /opt/gangway/bin/close-metadata.sh
    /opt/gangway/bin/run-trainer.sh
    /opt/gangway/bin/upload-record.sh
    /opt/gangway/bin/leave-node.sh
    /opt/gangway/bin/watch-node.sh
    /opt/gangway/bin/own-node.sh
    /opt/gangway/bin/own-job.sh
    /opt/gangway/lib/gangway/images/node/outbox.py
    /opt/gangway/lib/gangway/images/node/run_folder.py
    /etc/systemd/system/gangway-prepare.service
    /etc/systemd/system/gangway-metadata.service
    /etc/systemd/system/gangway-trainer.service
    /etc/systemd/system/gangway-watch.timer
    /etc/systemd/system/gangway-watch.service
)

NEEDS=(
    'python3: install Python 3.9 or later, which reads the run'"'"'s record'
    'nvidia-smi: install NVIDIA'"'"'s driver, a version for your image'"'"'s CUDA'
    'aws: install the AWS CLI, version 2, which uploads records to the run store'
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
 "name": "mine",
 "image": "123456789012.dkr.ecr.us-east-2.amazonaws.com/mine@sha256:cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",
 "backend": "nccl",
 "num_nodes_min": 1,
 "num_nodes_max": 1,
 "processes_per_node": 8,
 "rendezvous": {
  "host": "localhost",
  "port": 0,
  "standalone": false
 },
 "volumes": [],
 "env": {
  "GANGWAY_RUN_DIR": "/shared/gangway/runs/lab",
  "GANGWAY_NOTICES": "/shared/gangway/runs/lab.notices",
  "GREETING": "two words"
 },
 "module": "gangway.trainer",
 "training": null,
 "command": {
  "words": [
   "python",
   "train.py"
  ],
  "workdir": "/work",
  "torchrun_processes": 8
 },
 "run_id": "",
 "max_restarts": 3,
 "shutdown_timeout_sec": 60
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
    2001000001:2001000001
    --env
    USER=2001000001
    --gpus
    all
    --env
    GANGWAY_NOTICES=/shared/gangway/runs/lab.notices
    --env
    GANGWAY_RUN_DIR=/shared/gangway/runs/lab
    --env
    'GREETING=two words'
    --label
    gangway.stack=lab
    --label
    team=ml-platform
    --log-driver
    none
    --entrypoint
    /bin/sh
    --mount
    type=bind,source=/opt/gangway/bin/own-node.sh,target=/opt/gangway/bin/own-node.sh,readonly
    --mount
    type=bind,source=/opt/gangway/bin/own-job.sh,target=/opt/gangway/bin/own-job.sh,readonly
    --workdir
    /work
    123456789012.dkr.ecr.us-east-2.amazonaws.com/mine@sha256:cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd
    /opt/gangway/bin/own-node.sh
    /run/gangway-notices/held
    /shared/gangway/runs/lab/.launch/cfedf8fafa70
    28800
    3
    60
    --standalone
    --nnodes=1
    --nproc-per-node=8
    --max-restarts=0
    --
    python
    train.py
)
GANGWAY_FILE
put /etc/gangway/node.env 0600 <<'GANGWAY_FILE'
ALLOWED_SOURCES='10.30.0.11 fd00::12 10.99.0.0/16'
BUCKET_URI=s3://my-bucket/runs/lab
CONTAINER_ENGINE=docker
CONTAINER_NAME=gangway-trainer
DATA_DIR=''
GPUS_PLANNED=8
GPU_ARGUMENTS='--gpus all'
HEALTH_CHECKS='check-gpu.sh check-container.sh'
IMAGE=123456789012.dkr.ecr.us-east-2.amazonaws.com/mine@sha256:cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd
IMAGE_REGISTRY=registry.example.com
JOB_KEY=cfedf8fafa70
JOB_NAME=mine
JOB_PORTS=9400
LOG_GROUP=journal
MAX_SEC=28800
RESULTS_AT_END=yes
RESULTS_SEC=300
ROLE=worker
RUN_DIR=/shared/gangway/runs/lab
RUN_ID=''
SHARED_DIR=''
STACK=lab
TERMINATE_WHEN_DONE=''
TRAINER_UID=2001000001
TRIES_AGAIN=yes
GANGWAY_FILE
put /opt/gangway/bin/common.sh 0755 <<'GANGWAY_FILE'
@common-c0d5757b.sh.txt 0
put /opt/gangway/bin/cloud.sh 0755 <<'GANGWAY_FILE'
@cloud-746f9eb4.sh.txt 0
put /opt/gangway/bin/check-gpu.sh 0755 <<'GANGWAY_FILE'
@check-gpu-ac690736.sh.txt 0
put /opt/gangway/bin/close-ports.sh 0755 <<'GANGWAY_FILE'
@close-ports-4ff7647a.sh.txt 0
put /opt/gangway/bin/pull-image.sh 0755 <<'GANGWAY_FILE'
@pull-image-f9ed88b1.sh.txt 0
put /opt/gangway/bin/check-container.sh 0755 <<'GANGWAY_FILE'
@check-container-799c3aa0.sh.txt 0
put /opt/gangway/bin/check-shared.sh 0755 <<'GANGWAY_FILE'
@check-shared-5128a0cd.sh.txt 0
put /opt/gangway/bin/close-metadata.sh 0755 <<'GANGWAY_FILE'
@close-metadata-ce5da31f.sh.txt 0
put /opt/gangway/bin/run-trainer.sh 0755 <<'GANGWAY_FILE'
@run-trainer-596e280a.sh.txt 0
put /opt/gangway/bin/upload-record.sh 0755 <<'GANGWAY_FILE'
@upload-record-75f6fff7.sh.txt 0
put /opt/gangway/bin/leave-node.sh 0755 <<'GANGWAY_FILE'
@leave-node-2441dfba.sh.txt 0
put /opt/gangway/bin/watch-node.sh 0755 <<'GANGWAY_FILE'
@watch-node-e822b97b.sh.txt 0
put /opt/gangway/bin/own-node.sh 0755 <<'GANGWAY_FILE'
@own-node-04d240ac.sh.txt 0
put /opt/gangway/bin/own-job.sh 0755 <<'GANGWAY_FILE'
@own-job-c6c3cd34.sh.txt 0
put /opt/gangway/lib/gangway/images/node/outbox.py 0644 <<'GANGWAY_FILE'
@outbox-523ad0ab.py.txt 0
put /opt/gangway/lib/gangway/images/node/run_folder.py 0644 <<'GANGWAY_FILE'
@run_folder-15050c36.py.txt 0
put /etc/systemd/system/gangway-prepare.service 0644 <<'GANGWAY_FILE'
@gangway-prepare-f10f3bb6.service.txt 0
put /etc/systemd/system/gangway-metadata.service 0644 <<'GANGWAY_FILE'
@gangway-metadata-9cdfeffb.service.txt 0
put /etc/systemd/system/gangway-trainer.service 0644 <<'GANGWAY_FILE'
@gangway-trainer-3f4e010c.service.txt 0
put /etc/systemd/system/gangway-watch.timer 0644 <<'GANGWAY_FILE'
@gangway-watch-5b618a86.timer.txt 0
put /etc/systemd/system/gangway-watch.service 0644 <<'GANGWAY_FILE'
@gangway-watch-8d29a9ce.service.txt 0
}

main "$@"
exit
