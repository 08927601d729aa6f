#!/usr/bin/env bash
# Puts a stack's files and services on this machine, or takes them away again. What a job has written stays in both cases:
# runs, data, records.
#   installer.sh install SHA256 NAME   the sum of this very file, so that half a copy is not run; NAME of the machine
#   installer.sh remove NAME           nothing where it is installed under another name meanwhile
set -euo pipefail
ROOT=${GANGWAY_ROOT:-}
OWN=$ROOT/opt/gangway

say() { printf 'gangway: %s\n' "$*" >&2; }

# problems: a line for each thing that this machine lacks. Nothing has been written when they are told.
problems() {
    local owner
    [ "$(id -u)" = 0 ] || echo "not root: name root as the user, or one whose sudo asks for no password"
    command -v systemctl >/dev/null || echo "no systemd here, which starts and stops the trainer"
    [ "$(uname -m)" = x86_64 ] || echo "a $(uname -m) machine: the trainer's image is x86_64"
    if [ -z "$ENGINE_HINT" ]; then
        :
    elif [ ! -x "$ROOT/usr/bin/docker" ]; then
        echo "no /usr/bin/docker: $ENGINE_HINT"
    elif ! docker info >/dev/null 2>&1; then
        echo "docker info fails: start the container engine, or mend it"
    fi
    local need
    for need in "${NEEDS[@]}"; do
        command -v "${need%%:*}" >/dev/null || echo "no ${need%%:*} here: ${need#*: }"
    done
    for need in "${REFUSED[@]}"; do
        [ ! -e "$ROOT${need%%:*}" ] || echo "$need"
    done
    owner=$(cat "$OWN/stack" 2>/dev/null) || owner=$STACK
    [ "$owner" = "$STACK" ] || echo "this machine serves stack $owner: destroy that one first"
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
    [ "${#units[@]}" = 0 ] || systemctl disable --now "${units[@]}" gangway-prepare.service || say "some services were not there"
}

# drop_files PATH...: and our own folders that are empty then.
drop_files() {
    local path
    for path in "$@"; do
        rm -f "$ROOT$path"
    done
    find "$OWN" "$ROOT/etc/gangway" -depth -type d -empty -delete 2>/dev/null || true
}

take_away() {
    local paths container script
    stop_services
    for container in gangway-trainer gangway-rendezvous gangway-prometheus; do
        docker rm --force "$container" >/dev/null 2>&1 || true
    done
    for script in close-ports.sh join-wireguard.sh close-metadata.sh; do
        [ ! -e "$OWN/bin/$script" ] || GANGWAY_NODE_ENV=$ROOT/etc/gangway/node.env bash "$OWN/bin/$script" remove ||
            say "what $script did stays"
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
    [ "$(sha256sum <"$0" | cut -d' ' -f1)" = "$1" ] || { say "this copy is not whole: run pulumi up again"; exit 1; }
    found=$(problems)
    if [ -n "$found" ]; then
        say "this machine is not ready, and nothing was changed:"
        while read -r line; do say "  $line"; done <<<"$found"
        exit 1
    fi
    if [ "$(listed digest)" = "$1" ]; then
        printf '%s\n' "$2" >"$OWN/name"
        say "nothing to do: stack $STACK is installed just so"
        return
    fi
    trap 'say "not installed, and taken away again"; take_away' EXIT
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
        say "nothing of stack $STACK is here under the name $1"
        return
    fi
    take_away
    say "stack $STACK is taken away; runs and data are where they were"
}

main() {
    case ${1:-} in
    install) install_all "$2" "$3" ;;
    remove) remove_all "$2" ;;
    *)
        say "installer.sh install SHA256 NAME, or installer.sh remove NAME"
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
    /opt/gangway/bin/check-rdma.sh
    /opt/gangway/bin/check-shared.sh
    /opt/gangway/bin/close-ports.sh
    /opt/gangway/bin/fetch-key.sh
    /opt/gangway/bin/pull-image.sh
    /opt/gangway/bin/check-container.sh
    /opt/gangway/bin/close-metadata.sh
    /opt/gangway/bin/run-trainer.sh
    /opt/gangway/bin/upload-record.sh
    /opt/gangway/bin/leave-node.sh
    /opt/gangway/bin/watch-node.sh
    /opt/gangway/lib/images/node/outbox.py
    /etc/systemd/system/gangway-prepare.service
    /etc/systemd/system/gangway-metadata.service
    /etc/systemd/system/gangway-rendezvous.service
    /etc/systemd/system/gangway-prometheus.service
    /etc/systemd/system/gangway-trainer.service
    /etc/systemd/system/gangway-watch.timer
    /etc/systemd/system/gangway-record.timer
    /etc/systemd/system/gangway-watch.service
    /etc/systemd/system/gangway-record.service
    /etc/gangway/prometheus.yaml
)

NEEDS=(
    'python3: install Python 3.9 or later, with which the run'"'"'s record is read'
    'nvidia-smi: install NVIDIA'"'"'s driver, 580 or later, for the trainer'"'"'s CUDA 13'
    'aws: install AWS'"'"'s command line, version 2, which puts records into the run store'
)

REFUSED=(
)

SERVICES=(
    gangway-metadata.service
    gangway-rendezvous.service
    gangway-prometheus.service
    gangway-trainer.service
    gangway-watch.timer
    gangway-record.timer
)

write_files() {
put /etc/gangway/job.json 0600 <<'GANGWAY_FILE'
{
 "name": "dcgan-celeba64",
 "image": "123456789012.dkr.ecr.us-east-2.amazonaws.com/gangway-trainer@sha256:abababababababababababababababababababababababababababababababab",
 "backend": "nccl",
 "num_nodes_min": 2,
 "num_nodes_max": 4,
 "processes_per_node": 8,
 "rendezvous": {
  "host": "head.gangway.internal",
  "port": 29400,
  "standalone": false
 },
 "volumes": [
  {
   "source": "/shared/gangway",
   "target": "/shared/gangway",
   "read_only": false
  },
  {
   "source": "/data",
   "target": "/data",
   "read_only": true
  }
 ],
 "env": {
  "GANGWAY_NOTE": "it's \"50 %\" of $HOME\n\u00fc\u00f1\u00ed",
  "NCCL_NET": "IB"
 },
 "module": "trainer",
 "argv": [
  "train",
  "--run-dir",
  "/fsx/runs/dcgan-celeba64"
 ],
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
    --gpus
    all
    --device
    /dev/infiniband
    --env
    $'GANGWAY_NOTE=it\'s "50 %" of $HOME\012\303\274\303\261\303\255'
    --env
    NCCL_NET=IB
    --mount
    type=bind,source=/shared/gangway,target=/shared/gangway
    --mount
    type=bind,source=/data,target=/data,readonly
    --label
    gangway.stack=lab
    --label
    team=ml-platform
    --mount
    type=bind,source=/run/gangway-member.pem,target=/run/gangway-member.pem,readonly
    --log-driver
    none
    123456789012.dkr.ecr.us-east-2.amazonaws.com/gangway-trainer@sha256:abababababababababababababababababababababababababababababababab
    --member-key
    /run/gangway-member.pem
    --job-dir
    /shared/gangway/runs/lab/.launch/9ced312a39f5
    --max-hours
    8
    --nnodes=2:4
    --rdzv-backend=gangway
    --rdzv-endpoint=head.gangway.internal:29400
    --rdzv-id=dcgan-celeba64
    --rdzv-conf=is_host=0,last_call_timeout=3,keep_alive_interval=3
    --nproc-per-node=8
    --max-restarts=3
    --shutdown-timeout=25
    -m
    trainer
    train
    --run-dir
    /fsx/runs/dcgan-celeba64
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
HEALTH_CHECKS='check-gpu.sh check-rdma.sh check-shared.sh check-container.sh'
IMAGE=123456789012.dkr.ecr.us-east-2.amazonaws.com/gangway-trainer@sha256:abababababababababababababababababababababababababababababababab
JOB_KEY=9ced312a39f5
JOB_NAME=dcgan-celeba64
JOB_PORTS=9400,29400
LOG_GROUP=journal
MAX_SEC=28800
MEMBER_KEY=/etc/gangway/member.pem
RDMA_DEVICES=8
RDMA_GBPS=400
RDMA_HCAS=''
RDMA_LINK_LAYER=InfiniBand
RESULTS_AT_END=''
RESULTS_SEC=''
ROLE=worker
RUN_DIR=/shared/gangway/runs/lab
RUN_ID=''
SHARED_DIR=/shared/gangway
SIGNING_KEY=''
STACK=lab
TERMINATE_WHEN_DONE=''
TRAINER_UID=10001
TRIES_AGAIN=yes
GANGWAY_FILE
put /opt/gangway/bin/common.sh 0755 <<'GANGWAY_FILE'
. "${GANGWAY_NODE_ENV:-/etc/gangway/node.env}"
POLL_SEC=${GANGWAY_POLL_SEC:-5}
END_SEC=${GANGWAY_END_SEC:-15}
KEEP_SEC=${GANGWAY_KEEP_SEC:-3600}
STATE_DIR=${GANGWAY_STATE_DIR:-/run/gangway}/$JOB_KEY
. "$(dirname "${BASH_SOURCE[0]}")/cloud.sh"

log() { printf 'gangway: %s\n' "$*" >&2; }

up_sec() {
    local up
    read -r up _ <"${1:-${GANGWAY_UPTIME:-/proc/uptime}}"
    echo "${up%%.*}"
}

retry() {
    local deadline=$(($(up_sec /proc/uptime) + $1))
    shift
    until "$@"; do
        [ "$(up_sec /proc/uptime)" -lt "$deadline" ] || return 1
        sleep "$POLL_SEC"
    done
}

STARTED_SEC=$(up_sec /proc/uptime)
seconds_left() {
    local left=$((STARTED_SEC + DEADLINE_SEC - $(up_sec /proc/uptime)))
    echo $((left > 0 ? left : 1))
}

prepare_folder() {
    [ "$(stat -c %u "$1" 2>/dev/null)" = "$TRAINER_UID" ] ||
        { mkdir -p "$1" && chown --no-dereference "$TRAINER_UID:$TRAINER_UID" "$1"; }
}

apt_key() {
    local key found
    key=$(mktemp)
    curl -fsS --max-time 60 "$2" >"$key" || return
    found=$(gpg --batch --show-keys --with-colons "$key" | sed -n '/^pub/,/^fpr/s/^fpr:*\(.*\):$/\1/p') || return
    [ "$found" = "${3:-$found}" ] || give_up "$2 is the key $found, not $3"
    gpg --batch --dearmor --yes --output "${ROOT:-}/usr/share/keyrings/$1.gpg" <"$key" && rm "$key"
}

event() {
    [ -n "$LOG_GROUP" ] || return 0
    send_event "$@" || log "could not send to $LOG_GROUP: $*"
}

give_up() {
    if [ "$ROLE" = head ]; then
        log "not ready: $1"
        event head-not-ready reason "$1"
        exit 1
    fi
    log "giving this node up: $1"
    event node-given-up reason "$1"
    local go=replace_node
    if too_many_given_up "$1"; then
        go=hold_launches
        log "too many nodes gave themselves up: nothing is launched any more, until gangway breaker reset $STACK"
        event launches-held reason "$1"
    fi
    "$go" || log "could not have this node replaced: delete it by hand, it costs money and does nothing"
    exit 1
}

rest() {
    [ "$(up_sec)" -lt $(($(last_rest) + 21600)) ] || rm -f "$STATE_DIR/rests"
    up_sec >>"$STATE_DIR/rests"
    touch "$STATE_DIR/unfit"
}

last_rest() { tail -n 1 "$STATE_DIR/rests" 2>/dev/null || echo 0; }

rested() {
    local pauses=(0 0 60 180 420 900 1740) count
    [ -e "$STATE_DIR/rests" ] || return 0
    count=$(wc -l <"$STATE_DIR/rests")
    [ "$count" -lt "${#pauses[@]}" ] || count=$((${#pauses[@]} - 1))
    [ "$(up_sec)" -ge $(($(last_rest) + pauses[count])) ]
}

too_many_given_up() {
    local mine names held=$STATE_DIR/held.json
    [ -n "${BREAKER_LIMIT:-}" ] || return 1
    mine=$(date +%s)-$HOSTNAME
    mkdir -p "$STATE_DIR"
    echo "$1" >"$STATE_DIR/given-up"
    put_object "$STATE_DIR/given-up" "$JOB_NAME/breaker/$mine" || log "could not put $JOB_NAME/breaker/$mine"
    if ! names=$(list_objects "$JOB_NAME/breaker/"); then
        log "could not count the nodes that gave themselves up: this one is replaced"
        return 1
    fi
    python3 "$(dirname "${BASH_SOURCE[0]}")/../lib/images/node/breaker.py" "$BREAKER_LIMIT" "$BREAKER_SEC" \
        "$STACK" "$RUN_ID" "$mine" "$1" <<<"$names" >"$held" || return 1
    [ ! -s "$held" ] || put_object "$held" "$JOB_NAME/breaker/held.json" || log "could not put $JOB_NAME/breaker/held.json"
}

put_end() {
    local code reason file=$STATE_DIR/ended.json
    read -r code reason <"$STATE_DIR/ended"
    if [ "$code" = 0 ] || [ -e "$STATE_DIR/end-put" ]; then
        return 0
    fi
    printf '{"version": 1, "run_id": "%s", "stack": "%s", "node": "%s", "code": %s, "reason": "%s", "time": "%s"}\n' \
        "$RUN_ID" "$STACK" "$HOSTNAME" "$code" "$reason" "$(date -u +%FT%TZ)" >"$file"
    if retry "$END_SEC" put_object "$file" "$JOB_NAME/ended.json"; then
        touch "$STATE_DIR/end-put"
    else
        log "could not put $JOB_NAME/ended.json: who waits for the record waits until the deadline"
    fi
}

kept_long_enough() { [ "$(up_sec)" -ge $(($(cat "$STATE_DIR/ended-at" 2>/dev/null || echo 0) + KEEP_SEC)) ]; }

record_kept() {
    if retry "$END_SEC" timeout $((${RESULTS_SEC:-0} + 60)) bash "$(dirname "${BASH_SOURCE[0]}")/upload-record.sh"; then
        return 0
    fi
    if ! kept_long_enough; then
        log "the record cannot be put: this node stays, and watch-node.sh tries again, for $KEEP_SEC s from the job's end"
        return 1
    fi
    log "the record could not be put for $KEEP_SEC s: this node goes without"
}

tell() {
    put_end
    if [ ! -e "$STATE_DIR/told" ] && ! tell_ended; then
        kept_long_enough || return
        log "nobody could be told for $KEEP_SEC s that the job has ended: this node leaves"
        event end-not-told reason "tried for $KEEP_SEC s: mend the bucket, or destroy the stack, before others come"
    fi
    touch "$STATE_DIR/told"
}

depart() {
    [ -e "$STATE_DIR/kept" ] || { record_kept && touch "$STATE_DIR/kept"; } || return
    [ -z "$TERMINATE_WHEN_DONE" ] || leave_group
}

end_job() {
    mkdir -p "$STATE_DIR"
    up_sec >"$STATE_DIR/ended-at"
    echo "$1 $2" >"$STATE_DIR/ended"
    log "the job has ended: $2, exit status $1"
    event job-ended exit_status "$1" reason "$2"
    { tell && { [ -n "$RESULTS_AT_END" ] || depart; }; } ||
        log "cannot leave yet: watch-node.sh tries again"
}
GANGWAY_FILE
put /opt/gangway/bin/cloud.sh 0755 <<'GANGWAY_FILE'

export METADATA_IPV4='169.254.169.254 169.254.170.2 169.254.170.23 169.254.42.42 169.254.0.23 168.63.129.16 100.100.100.200'
export METADATA_IPV6='fd00:ec2::254 fd00:ec2::23 fd20:ce::254 fd00:c1::a9fe:a9fe fe80::a9fe:a9fe'

leaving() { [ "$(systemctl is-system-running)" = stopping ]; }
own_capacity() { echo on-demand; }
made_for_job() { false; }
group_waits() { false; }
let_go() { :; }

send_event() { log "event: $*"; }

replace_node() { log "nobody replaces a machine that is there: mend it; it is looked at again within half an hour"; }
tell_ended() { :; }
leave_group() { :; }

put_blob() {
    local account container folder
    IFS=/ read -r account container folder <<<"${BUCKET_URI#az://}"
    az storage blob upload --auth-mode login --overwrite --only-show-errors --output none \
        --account-name "$account" --container-name "$container" --name "${folder:+$folder/}$2" --file "$1"
}

put_copy() { install -D -m 0644 "$1" "$2.part" && mv "$2.part" "$2"; }

put_object() {
    case $BUCKET_URI in
    s3://*) aws s3 cp --only-show-errors "$1" "$BUCKET_URI/$2" ;;
    gs://*) gcloud storage cp --quiet "$1" "$BUCKET_URI/$2" ;;
    az://*) put_blob "$1" "$2" ;;
    *) put_copy "$1" "$BUCKET_URI/$2" ;;
    esac
}

put_blobs() {
    local name deadline=$(($(up_sec /proc/uptime) + RESULTS_SEC))
    while IFS= read -r -d '' name; do
        if [ "$(up_sec /proc/uptime)" -ge "$deadline" ]; then
            echo "not all files within $RESULTS_SEC s"
            return 1
        fi
        put_blob "$1/$name" "$2/$name" </dev/null || return
    done < <(find "$1/" -type f -printf '%P\0')
}

put_folder() {
    local from=${1/self/$$} to=$BUCKET_URI/$2
    case $BUCKET_URI in
    s3://*) timeout "$RESULTS_SEC" aws s3 cp --recursive --only-show-errors "$from" "$to" ;;
    gs://*) timeout "$RESULTS_SEC" gcloud storage rsync --recursive --no-ignore-symlinks --quiet "$from/" "$to" ;;
    az://*) put_blobs "$from" "$2" ;;
    *) mkdir -p "$to" && timeout "$RESULTS_SEC" cp -R "$from/." "$to" ;;
    esac
}

member_key() { cat "$MEMBER_KEY"; }
signing_key() { cat "$SIGNING_KEY"; }

registry_login() { :; }
GANGWAY_FILE
put /opt/gangway/bin/check-gpu.sh 0755 <<'GANGWAY_FILE'
#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_GPU_DEADLINE_SEC:-120}
DIAG_SEC=${GANGWAY_GPU_DIAG_SEC:-300}
XIDS_OF_ALL='46|48|62|64|79|95|109|119|120|140|158'
XIDS_OF_AMPERE='74'
XIDS_OF_HOPPER='74|110|136|143|151|156'
XIDS_OF_BLACKWELL='110|143|151|156'
XIDS_OF_NVLINK5='14[4-9]|150'
RECOVERY='(GPU Reset|Node Reboot) Required|Drain and Reset'

count_gpus() { nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null | grep -c '^[0-9]'; }

enough_gpus() { [ "$(count_gpus)" -ge "$GPUS_PLANNED" ]; }

sick_by() {
    local name=$1 rows
    shift
    rows=$(nvidia-smi "$@" --format=csv,noheader,nounits) || give_up "nvidia-smi does not answer for $name"
    rows=$(grep -Ei ', *(yes|[1-9][0-9]*)' <<<"$rows") || return 0
    give_up "$name: $rows"
}

fatal_lines() {
    local more=$XIDS_OF_AMPERE nvlink5=
    case $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1) in
        9.*) more=$XIDS_OF_HOPPER ;;
        1[0-9].*)
            more=$XIDS_OF_BLACKWELL
            nvlink5="|($XIDS_OF_NVLINK5), [A-Z0-9_]+ Fatal "
            ;;
    esac
    echo "(($XIDS_OF_ALL|$more),|154,.* to .*\(($RECOVERY)\)$nvlink5)"
}

retry "$DEADLINE_SEC" enough_gpus || give_up "$(count_gpus) GPUs after $DEADLINE_SEC s, $GPUS_PLANNED planned"
sick_by "rows to remap" --query-remapped-rows=gpu_bus_id,remapped_rows.pending,remapped_rows.failure
sick_by "uncorrected ECC errors" --query-gpu=index,ecc.errors.uncorrected.volatile.total
if xids=$(dmesg | grep -E "NVRM: Xid \(.*\): $(fatal_lines)"); then
    give_up "fatal Xid: $xids"
fi
ran_before=$(systemctl is-active nvidia-dcgm.service) || ran_before=
if command -v dcgmi >/dev/null && systemctl start nvidia-dcgm.service && dcgmi discovery -l >/dev/null; then
    report=$(timeout "$DIAG_SEC" dcgmi diag -r 1) || give_up "dcgmi diag -r 1: $report"
    [ "$ran_before" = active ] || systemctl stop nvidia-dcgm.service
    log "GPUs: $(count_gpus), dcgmi diag -r 1 passed"
else
    log "GPUs: $(count_gpus), no DCGM here: ECC, row remapping and Xids looked at"
fi
GANGWAY_FILE
put /opt/gangway/bin/check-rdma.sh 0755 <<'GANGWAY_FILE'
#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
SYSFS=${GANGWAY_SYSFS:-/sys}
DEADLINE_SEC=${GANGWAY_RDMA_DEADLINE_SEC:-300}

ports() {
    local port name
    for port in "$SYSFS"/class/infiniband/*/ports/1; do
        name=$(basename "${port%/ports/1}")
        [ -z "$RDMA_HCAS" ] || grep -qxF "$name" <<<"${RDMA_HCAS// /$'\n'}" || continue
        [ "$(cat "$port/link_layer" 2>/dev/null)" != "$RDMA_LINK_LAYER" ] || echo "$port"
    done
}

good_ports() {
    local port rate
    while read -r port; do
        rate=$(cut -d' ' -f1 "$port/rate")
        if [ "$(cat "$port/state")" = "4: ACTIVE" ] && [ "${rate%.*}" -ge "$RDMA_GBPS" ]; then
            echo "$port"
        fi
    done < <(ports)
}

count() { "$1" | wc -l; }

enough() { [ "$(count good_ports)" -ge "$RDMA_DEVICES" ]; }

said_by_all() {
    local port
    while read -r port; do
        echo "$(basename "${port%/ports/1}"): $(cat "$port/state"), $(cat "$port/rate")"
    done < <(ports)
}

retry "$DEADLINE_SEC" enough ||
    give_up "RDMA over $RDMA_LINK_LAYER after $DEADLINE_SEC s: $(count good_ports) adapters up at $RDMA_GBPS Gb/s, $RDMA_DEVICES stated; $(said_by_all | paste -sd '|')"
log "RDMA over $RDMA_LINK_LAYER: $(count good_ports) adapters up at $RDMA_GBPS Gb/s"
GANGWAY_FILE
put /opt/gangway/bin/check-shared.sh 0755 <<'GANGWAY_FILE'
#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"

[ -n "$SHARED_DIR" ] || exit 0
at=$(ls "$SHARED_DIR" >/dev/null 2>&1 && findmnt -n -o TARGET --target "$SHARED_DIR") ||
    give_up "$SHARED_DIR is not there: mount the file system that all machines share"
[ "$at" != / ] || give_up "$SHARED_DIR is on this machine's own disk: mount the file system that all machines share"
runs=$(dirname "$RUN_DIR")
mkdir -p "$runs" || give_up "root cannot make $runs: export $SHARED_DIR without root_squash, or make it by hand"
owner=$(stat -c %u "$runs")
if [ -L "$runs" ] || { [ "$owner" != 0 ] && [ "$owner" != "$(id -u)" ]; }; then
    give_up "$runs is a link, or user $owner's: make it a folder of root's (chown root $runs)"
fi
prepare_folder "$RUN_DIR" ||
    give_up "root cannot make $RUN_DIR for user $TRAINER_UID: export $SHARED_DIR without root_squash, or make it by hand"
GANGWAY_FILE
put /opt/gangway/bin/close-ports.sh 0755 <<'GANGWAY_FILE'
#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
CHAIN=GANGWAY
HOOK=(INPUT --protocol tcp --match multiport --dports "$JOB_PORTS" --jump "$CHAIN")

allowed_of() {
    local database=ahostsv4 source
    [ "$1" = iptables ] || database=ahostsv6
    for source in $ALLOWED_SOURCES; do
        case $source in
        *:*/*) [ "$1" = iptables ] || echo "$source" ;;
        */*) [ "$1" != iptables ] || echo "$source" ;;
        *) getent "$database" "$source" | cut -d' ' -f1 | grep -v '^::ffff:' ;;
        esac
    done | sort -u
}

closed() {
    local rules source
    rules=$(
        printf '*filter\n:%s - [0:0]\n-A %s -i lo -j RETURN\n' "$CHAIN" "$CHAIN"
        for source in $(allowed_of "$1"); do
            printf -- '-A %s -s %s -j RETURN\n' "$CHAIN" "$source"
        done
        printf -- '-A %s -j REJECT\nCOMMIT\n' "$CHAIN"
    )
    "$1-restore" --noflush --wait 10 <<<"$rules" &&
        { "$1" --wait 10 --check "${HOOK[@]}" 2>/dev/null || "$1" --wait 10 --insert "${HOOK[@]}"; }
}

opened() {
    "$1" --wait 10 --delete "${HOOK[@]}" && "$1" --wait 10 --flush "$CHAIN" && "$1" --wait 10 --delete-chain "$CHAIN"
}

if ! command -v iptables >/dev/null; then
    log "no iptables here: whoever reaches this machine reaches its ports $JOB_PORTS"
    exit 0
fi
families=(iptables)
[ ! -e "${GANGWAY_IPV6:-/proc/net/if_inet6}" ] || families+=(ip6tables)
for tables in "${families[@]}"; do
    if [ "${1:-}" = remove ]; then
        opened "$tables" 2>/dev/null || true
    else
        closed "$tables" || give_up "cannot close ports $JOB_PORTS to all but $ALLOWED_SOURCES: $tables refuses"
    fi
done
GANGWAY_FILE
put /opt/gangway/bin/fetch-key.sh 0755 <<'GANGWAY_FILE'
#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_KEY_DEADLINE_SEC:-900}
FILE=${GANGWAY_MEMBER_FILE:-/run/gangway-member.pem}

fetched() { member_key >"$FILE.new" && grep -q 'PRIVATE KEY' "$FILE.new" && grep -q CERTIFICATE "$FILE.new"; }

umask 077
retry "$DEADLINE_SEC" fetched ||
    give_up "cannot read $MEMBER_KEY, by which nodes know each other: no right to it, no way to it, or not there"
chown "$TRAINER_UID:$TRAINER_UID" "$FILE.new"
chmod 0400 "$FILE.new"
mv "$FILE.new" "$FILE"
GANGWAY_FILE
put /opt/gangway/bin/pull-image.sh 0755 <<'GANGWAY_FILE'
#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_PULL_DEADLINE_SEC:-900}

pull() { registry_login && docker pull --quiet "$IMAGE"; }

retry "$DEADLINE_SEC" pull || give_up "cannot pull $IMAGE within $DEADLINE_SEC s"
GANGWAY_FILE
put /opt/gangway/bin/check-container.sh 0755 <<'GANGWAY_FILE'
#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"

[ "$GPUS_PLANNED" -gt 0 ] || exit 0
seen=$(docker run --rm $GPU_ARGUMENTS --entrypoint nvidia-smi "$IMAGE" --list-gpus 2>&1) ||
    give_up "no GPU in a container: install NVIDIA's container toolkit and configure it for $CONTAINER_ENGINE; $seen"
[ "$(grep -c '^GPU ' <<<"$seen")" -ge "$GPUS_PLANNED" ] ||
    give_up "a container sees $(grep -c '^GPU ' <<<"$seen") GPUs, $GPUS_PLANNED planned"
GANGWAY_FILE
put /opt/gangway/bin/close-metadata.sh 0755 <<'GANGWAY_FILE'
#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
CHAIN=GANGWAY-METADATA
user=${SLURM_JOB_UID:-${TRAINER_UID:-0}}
[ "$user" != 0 ] || user=65533

refuse() {
    for address in $addresses; do
        printf -- "-A $CHAIN -d $address -p %s -j $1\n" \
            "tcp -m tcp ! --dport 53" "udp -m multiport ! --dports 53,67,123,547"
    done
    echo COMMIT
}

rules() {
    printf '*filter\n:%s -\n' "$CHAIN"
    for name in root ${METADATA_USERS:-}; do
        uid=$(id -u "$name" 2>/dev/null) && echo "-A $CHAIN -m owner --uid-owner $uid -j RETURN"
    done
    refuse REJECT
    printf '*mangle\n:%s -\n' "$CHAIN"
    refuse DROP
}

hook() {
    local at=(--wait 10 --table "$1") rule=("$2" --jump "$CHAIN")
    if [ "$act" = remove ]; then
        for rule in "--delete $2 --jump" --flush --delete-chain; do
            "$tables" "${at[@]}" $rule "$CHAIN" 2>/dev/null || true
        done
    else
        "$tables" "${at[@]}" --check "${rule[@]}" 2>/dev/null || "$tables" "${at[@]}" --insert "${rule[@]}"
    fi
}

refused() {
    local code=0 connected
    connected=$(setpriv --reuid "$user" --regid "$user" --clear-groups curl --silent --globoff --noproxy '*' \
        --connect-timeout 2 --max-time 5 --output /dev/null --write-out '%{time_connect}' "http://$1/") || code=$?
    [ "$code" = 7 ] || { [ "$code" = 28 ] && [[ $connected =~ ^0[.,]?0*$ ]]; }
}

act=${1:-}
for tables in iptables ip6tables; do
    addresses=$METADATA_IPV4
    if [ "$tables" = ip6tables ]; then
        [ -e "${GANGWAY_IPV6:-/proc/net/if_inet6}" ] || continue
        addresses=$METADATA_IPV6
    fi
    if ! command -v "$tables" >/dev/null; then
        log "no $tables here: no user is kept from $addresses"
    elif ! { [ "$act" = remove ] || "$tables-restore" --noflush --wait 10 <<<"$(rules)"; } ||
        ! hook filter OUTPUT || ! hook mangle FORWARD; then
        log "cannot keep users from $addresses"
        exit 1
    fi
    [ -z "$act" ] || continue
    for address in $addresses; do
        [ "$tables" = iptables ] || address=[$address]
        refused "$address" || {
            log "user $user still reaches $address"
            exit 1
        }
    done
done
GANGWAY_FILE
put /opt/gangway/bin/run-trainer.sh 0755 <<'GANGWAY_FILE'
#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
DOCKER_ARGV=() RUN=(docker)
. "${GANGWAY_JOB_ENV:-/etc/gangway/job.env}"

mkdir -p "$STATE_DIR"
rm -f "$STATE_DIR/ran"
if leaving; then
    log "this node is about to go: the trainer is not started again"
    exit 0
fi
if [ -e "$STATE_DIR/ended" ]; then
    log "the job has ended ($(cat "$STATE_DIR/ended")): remove $STATE_DIR to start it again"
    exit 0
fi
if [ -e "$STATE_DIR/unfit" ] && [ -z "$TRIES_AGAIN" ]; then
    log "this node was given up: nothing is started on it"
    exit 4
fi
"$(dirname "$0")/close-metadata.sh" || exit 1
if [ -e "$STATE_DIR/failed" ]; then
    for check in $HEALTH_CHECKS; do
        if ! "$(dirname "$0")/$check"; then
            rest
            exit 4
        fi
    done
fi
rm -f "$STATE_DIR/failed" "$STATE_DIR/unfit"
for folder in "$RUN_DIR" ${DATA_DIR:+"$DATA_DIR"}; do
    prepare_folder "$folder" || exit 1
done
total_kib=$(sed -n 's/^MemTotal: *\([0-9]*\) kB$/\1/p' "${GANGWAY_MEMINFO:-/proc/meminfo}")
kept_kib=$((total_kib / 20 < 8388608 ? total_kib / 20 : 8388608))
DOCKER_ARGV=("${DOCKER_ARGV[0]}" --memory "$((total_kib - kept_kib))k" "${DOCKER_ARGV[@]:1}")
capacity=$(own_capacity) || capacity=
if [ -n "$capacity" ]; then
    DOCKER_ARGV=("${DOCKER_ARGV[0]}" --env "GANGWAY_CAPACITY=$capacity" "${DOCKER_ARGV[@]:1}")
fi
[ -e "$STATE_DIR/first-start" ] || up_sec >"$STATE_DIR/first-start"
rm -f "$STATE_DIR"/{end-put,told,kept}
touch "$STATE_DIR/ran"
exec "${RUN[@]}" "${DOCKER_ARGV[@]}"
GANGWAY_FILE
put /opt/gangway/bin/upload-record.sh 0755 <<'GANGWAY_FILE'
#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"

put() {
    local said status=0
    said=$("${@:3}" 2>&1) || status=$?
    if [ "$status" != 0 ]; then
        said=${said:-exit status $status}
        log "$said"
        event record-not-put reason "$said"
        return 1
    fi
    echo "$2" >"$STATE_DIR/$1"
}

sign_record() {
    local own key=$STATE_DIR/signing.pem file=$STATE_DIR/run.json.sig
    [ -n "${SIGNING_KEY:-}" ] || return 0
    [ -s "$key" ] || (umask 077 && signing_key >"$key") || true
    own=$(openssl pkey -in "$key" -pubout -outform DER | tail -c 32 | base64 -w0) || true
    own+=" "$(openssl pkeyutl -sign -rawin -inkey "$key" -in "$RECORD" | base64 -w0) || true
    if [ "${#own}" = 133 ]; then
        own+=$'\n'$(grep -svxF "$own" "$file" | head -n 1) || true
    else
        own="cannot sign run.json with $SIGNING_KEY"
        log "$own"
        event record-not-signed reason "$own"
        rm "$key"
        own=
    fi
    echo "$own" >"$file"
    put signed "$SUM_OF_RECORD" put_object "$file" "$JOB_NAME/run.json.sig"
}

if [ -z "${OPENED:-}" ]; then
    mkdir -p "$STATE_DIR"
    results=
    if [ -n "$RESULTS_SEC" ] && { [ -z "$RESULTS_AT_END" ] || [ -e "$STATE_DIR/ended" ]; }; then
        results=yes
    fi
    OPENED=yes exec python3 "$(dirname "$0")/../lib/images/node/outbox.py" \
        "$RUN_DIR" "$TRAINER_UID" "$STATE_DIR" "${1:-$results}" bash "$0"
fi
status=0
if [ -n "$RECORD" ]; then
    if sign_record && put uploaded "$SUM_OF_RECORD" put_object "$RECORD" "$JOB_NAME/run.json"; then
        event record-put reason "$BUCKET_URI/$JOB_NAME/run.json"
    else
        status=1
    fi
elif [ -n "$PROGRESS" ] && [ "$(up_sec)" -ge "$(cat "$STATE_DIR/progress-due" 2>/dev/null || echo 0)" ]; then
    echo "$PROGRESS" >"$STATE_DIR/progress.json"
    if put_object "$STATE_DIR/progress.json" "$JOB_NAME/progress.json"; then
        echo $(($(up_sec) + 600)) >"$STATE_DIR/progress-due"
        echo "$PROGRESS" >"$STATE_DIR/progress"
    else
        log "the progress could not be put"
    fi
fi
if [ -n "$RESULTS" ]; then
    put results "$SUM_OF_RESULTS" put_folder "$RESULTS" "$JOB_NAME" || status=1
fi
exit "$status"
GANGWAY_FILE
put /opt/gangway/bin/leave-node.sh 0755 <<'GANGWAY_FILE'
#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
STARTS_ALLOWED=${GANGWAY_STARTS_ALLOWED:-5}

exit_status() {
    if [ "${EXIT_CODE:-exited}" = exited ]; then
        echo "$EXIT_STATUS"
    else
        echo $((128 + $(kill -l "$EXIT_STATUS")))
    fi
}

not_run() {
    touch "$STATE_DIR/failed"
    echo >>"$STATE_DIR/not-run"
    if [ "$(wc -l <"$STATE_DIR/not-run")" -ge "$STARTS_ALLOWED" ]; then
        rm "$STATE_DIR/not-run"
        rest
        give_up "the trainer's container could not be started $STARTS_ALLOWED times in a row"
    fi
}

if leaving; then
    if group_waits; then
        let_go
    fi
    exit 0
fi
if [ -e "$STATE_DIR/ended" ] || [ -e "$STATE_DIR/unfit" ] || [ -z "${EXIT_STATUS:-}" ]; then
    exit 0
fi
mkdir -p "$STATE_DIR"
status=$(exit_status)
if [ ! -e "$STATE_DIR/ran" ] || { [ "$status" -ge 125 ] && [ "$status" -le 127 ]; }; then
    [ "$status" = 0 ] || not_run
    exit 0
fi
rm -f "$STATE_DIR/not-run"
case $status in
0) end_job 0 "done" ;;
2) end_job 2 bad-input ;;
3) end_job 3 fabric-too-slow ;;
4)
    [ -z "$TRIES_AGAIN" ] || { touch "$STATE_DIR/failed" && rest; }
    give_up "the trainer failed too often on this node, and others go on"
    ;;
5) end_job 5 too-many-failures ;;
6) end_job 6 max-hours ;;
75) log "interrupted with a checkpoint on disk: the trainer is started again" ;;
*)
    if [ "${SERVICE_RESULT:-}" != success ]; then
        log "the trainer has failed here, exit status $status: started again once this node's health was looked at"
        touch "$STATE_DIR/failed"
    fi
    ;;
esac
GANGWAY_FILE
put /opt/gangway/bin/watch-node.sh 0755 <<'GANGWAY_FILE'
#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
GRACE_SEC=${GANGWAY_GRACE_SEC:-600}
TRAINER=gangway-trainer.service

too_long() {
    local first
    [ -n "$MAX_SEC" ] || return 1
    first=$(cat "$STATE_DIR/first-start" 2>/dev/null) || { made_for_job && first=0; } || return
    [ "$(up_sec)" -ge $((first + MAX_SEC + GRACE_SEC + ${1:-0})) ]
}

hours_over() { [ -e "$STATE_DIR/first-start" ] && too_long "$(idle_sec)"; }
idle_sec() { cat "$STATE_DIR/idle-sec" 2>/dev/null || echo 0; }

outlived() { [ -n "$TERMINATE_WHEN_DONE" ] && made_for_job && too_long; }

count_idle() {
    local now last was
    [ -e "$STATE_DIR/first-start" ] || return 0
    now=$(up_sec)
    read -r last was 2>/dev/null <"$STATE_DIR/looked" || last=$now was=
    echo "$now $1" >"$STATE_DIR/looked"
    if [ -n "$1" ] && [ -n "$was" ]; then
        echo $(($(idle_sec) + now - last)) >"$STATE_DIR/idle-sec"
    elif [ $((now - last)) -gt 600 ]; then
        echo $(($(idle_sec) + now - last - 60)) >"$STATE_DIR/idle-sec"
    fi
}

leave_alone() {
    if [ ! -e "$STATE_DIR/alone" ]; then
        log "up longer than the job's hours, in which the trainer rested: this node leaves"
        event node-outlived reason "up longer than the job's hours, in which the trainer rested"
        mkdir -p "$STATE_DIR" && touch "$STATE_DIR/alone"
    fi
    timeout $((${RESULTS_SEC:-0} + 60)) bash "$(dirname "$0")/upload-record.sh" ||
        log "the record could not be put: this node goes without"
    leave_group || log "could not leave: tried again in a minute"
}

trainer_rests() {
    case $(systemctl is-active "$TRAINER") in
    inactive | failed) ;;
    *) return 1 ;;
    esac
}

idle=
if trainer_rests; then
    idle=yes
fi
count_idle "$idle"
if [ -z "$idle" ] && ! "$(dirname "$0")/close-metadata.sh"; then
    log "the job could reach this machine's tokens: stopped"
    systemctl stop "$TRAINER"
    exit 1
fi
if [ -z "$idle" ]; then
    hours_over || outlived || {
        if [ -n "$RESULTS_SEC" ] && [ -z "$RESULTS_AT_END" ]; then
            timeout 60 bash "$(dirname "$0")/upload-record.sh" progress || true
        fi
        exit 0
    }
    log "the trainer still runs $GRACE_SEC s after the hours that it has here, or this machine: stopped"
    systemctl stop "$TRAINER"
fi
if group_waits; then
    let_go
elif [ -e "$STATE_DIR/ended" ]; then
    tell && depart
elif hours_over; then
    end_job 6 max-hours
elif outlived; then
    leave_alone
elif [ -e "$STATE_DIR/unfit" ] && [ -n "$TRIES_AGAIN" ] && rested; then
    systemctl start --no-block "$TRAINER"
fi
GANGWAY_FILE
put /opt/gangway/lib/images/node/outbox.py 0644 <<'GANGWAY_FILE'
import hashlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import NamedTuple
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_BYTES_OF_RECORD = 64000000
_MOST_PICTURES = 10000
_NONE = -1

class Owned(NamedTuple):
    at: int
    uid: int

    def file(self, name):
        return self._opened(name, _FILE, stat.S_IFREG)

    def folder(self, name):
        return Owned(self._opened(name, _FOLDER, stat.S_IFDIR), self.uid)

    def has(self, name):
        descriptor = self.file(name)
        if descriptor != _NONE:
            os.close(descriptor)
        return descriptor != _NONE

    def close(self):
        if self.at != _NONE:
            os.close(self.at)

    def names(self):
        return sorted(os.listdir(self.at), reverse=True) if self.at != _NONE else []

    def _opened(self, name, flags, kind):
        if self.at == _NONE:
            return _NONE
        try:
            descriptor = os.open(name, flags, dir_fd=self.at)
        except FileNotFoundError:
            return _NONE
        except OSError as error:
            say(f'{name!r} is left out: {error.strerror}')
            return _NONE
        found = os.fstat(descriptor)
        if stat.S_IFMT(found.st_mode) == kind and found.st_uid == self.uid:
            return descriptor
        os.close(descriptor)
        say(f'{name!r} is left out: it is nothing that the trainer has written')
        return _NONE

class Results(NamedTuple):
    names: tuple[str, ...]
    sum: str

def say(sentence):
    print(f'gangway: {sentence}', file=sys.stderr, flush=True)

def get_checksum(descriptor):
    if descriptor == _NONE:
        return ''
    content = hashlib.sha256()
    with os.fdopen(descriptor, 'rb', closefd=False) as file:
        while (block := file.read(1 << 20)):
            content.update(block)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return content.hexdigest()

def get_record(run):
    record = run.file('run.json')
    if record == _NONE:
        say('no run record yet')
    elif os.fstat(record).st_size > _MOST_BYTES_OF_RECORD:
        say("'run.json' is left out: it is too large for a record")
        return _NONE
    return record

def get_progress(run):
    stats = run.file('stats.jsonl')
    if stats == _NONE:
        return ''
    with os.fdopen(stats, 'rb') as file:
        file.seek(max(0, os.fstat(stats).st_size - (1 << 20)))
        lines = file.read(1 << 20).splitlines()
    for line in reversed(lines):
        with suppress(Exception):
            told = json.loads(line)
            return json.dumps({'version': 1, **{name: int(told[name]) for name in ('images', 'time')}})
    return ''

def get_results(run):
    with closing(run.folder('checkpoints')) as checkpoints, closing(run.folder('samples')) as samples:
        saved = checkpoints.names()
        newest = next((name for name in saved if name.endswith('.pt') and checkpoints.has(name)), '')
        of_newest = [name for name in saved if newest and name.startswith(newest.removesuffix('pt'))]
        pictures = samples.names()
    if len(pictures) > _MOST_PICTURES:
        say(f'of {len(pictures)} pictures the last {_MOST_PICTURES} are put')
    names = [name for name in ('config.json', 'stats.jsonl', 'reals.png', 'samples.png') if run.has(name)]
    names += [f'checkpoints/{name}' for name in of_newest[:_MOST_PICTURES]]
    names += [f'samples/{name}' for name in pictures[:_MOST_PICTURES]]
    return Results(tuple(names), f"{newest} {get_checksum(run.file('stats.jsonl'))}")

@contextmanager
def gathered(run, names):
    prefix = f'.results-{socket.gethostname()}-'
    for name in run.names():
        if name.startswith(prefix):
            remove(run, name)
    name = prefix + os.urandom(8).hex()
    os.mkdir(name, 448, dir_fd=run.at)
    own = Owned(run.at, os.geteuid()).folder(name)
    if own.at == _NONE:
        raise OSError(f'{name} was swapped as soon as it was made')
    try:
        for folder, group in groupby(names, lambda each: each.rpartition('/')[0]):
            put_in(run, own, folder, [each.rpartition('/')[2] for each in group])
        yield own.at
    finally:
        remove(run, name)
        own.close()

def put_in(run, own, folder, names):
    if not folder:
        link(run, own, names)
        return
    os.mkdir(folder, 448, dir_fd=own.at)
    with closing(run.folder(folder)) as source, closing(own.folder(folder)) as target:
        link(source, target, names)

def link(source, target, names):
    for name in names:
        descriptor = source.file(name)
        if descriptor != _NONE:
            os.link(f'/proc/self/fd/{descriptor}', name, dst_dir_fd=target.at, follow_symlinks=True)
            os.close(descriptor)

def remove(run, name):
    try:
        shutil.rmtree(f'/proc/self/fd/{run.at}/{name}', ignore_errors=True)
    except RecursionError:
        say(f'{name!r} stays: it is deeper than any folder of ours')

def main(argv):
    run_dir, uid, marks, wanted, *command = argv
    run = Owned(os.open('/', os.O_RDONLY | os.O_DIRECTORY), int(uid)).folder(run_dir.lstrip('/'))
    record = _NONE if wanted == 'progress' else get_record(run)
    progress = ''
    try:
        progress = get_progress(run)
    except OSError as error:
        say(f'the progress is left out: {error}')
    paths = {'RECORD': '', 'SUM_OF_RECORD': get_checksum(record), 'RESULTS': '', 'SUM_OF_RESULTS': ''}
    paths['PROGRESS'] = '' if progress == last_sum(marks, 'progress') else progress
    with ExitStack() as held:
        given = []
        if record != _NONE and paths['SUM_OF_RECORD'] != last_sum(marks, 'uploaded'):
            given.append(record)
            paths['RECORD'] = f'/proc/self/fd/{record}'
        try:
            results = get_results(run) if wanted == 'yes' else Results((), '')
            if results.names and results.sum != last_sum(marks, 'results'):
                given.append(held.enter_context(gathered(run, results.names)))
                paths |= {'RESULTS': f'/proc/self/fd/{given[-1]}', 'SUM_OF_RESULTS': results.sum}
        except OSError as error:
            say(f'results are left out: {error}')
        return subprocess.run(command, env={**os.environ, **paths}, pass_fds=given, check=False).returncode

def last_sum(marks, name):
    path = Path(marks, name)
    return path.read_text('utf-8').strip() if path.exists() else ''
if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
GANGWAY_FILE
put /etc/systemd/system/gangway-prepare.service 0644 <<'GANGWAY_FILE'
[Unit]
Description=Gangway: make this node ready for the trainer, or give it up
Wants=network-online.target
After=network-online.target docker.service

[Service]
Type=oneshot
RemainAfterExit=yes
TimeoutStartSec=infinity
Restart=on-failure
RestartSec=30
ExecStart=/opt/gangway/bin/check-gpu.sh
ExecStart=/opt/gangway/bin/check-rdma.sh
ExecStart=/opt/gangway/bin/check-shared.sh
ExecStart=/opt/gangway/bin/close-ports.sh
ExecStart=/opt/gangway/bin/fetch-key.sh
ExecStart=/opt/gangway/bin/pull-image.sh
ExecStart=/opt/gangway/bin/check-container.sh
ExecStart=/usr/bin/systemctl start --no-block gangway-trainer.service
GANGWAY_FILE
put /etc/systemd/system/gangway-metadata.service 0644 <<'GANGWAY_FILE'
[Unit]
Description=Gangway: keep users from the metadata service, before there is a network
DefaultDependencies=no
After=local-fs.target
Wants=network-pre.target
Before=network-pre.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/opt/gangway/bin/close-metadata.sh rules

[Install]
WantedBy=multi-user.target
GANGWAY_FILE
put /etc/systemd/system/gangway-rendezvous.service 0644 <<'GANGWAY_FILE'
[Unit]
Description=Gangway: the store in which the job's nodes meet
Requires=gangway-prepare.service
After=gangway-prepare.service docker.service
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStartPre=-/usr/bin/docker rm --force gangway-rendezvous
ExecStart=/usr/bin/docker run --rm --init --name gangway-rendezvous --network host --cap-drop ALL --security-opt no-new-privileges --read-only --tmpfs /tmp:rw,exec,nosuid,nodev,mode=1777 --pids-limit 1024 --memory 1g --log-driver none --mount type=bind,source=/run/gangway-member.pem,target=/run/gangway-member.pem,readonly --user 10001:10001 --entrypoint python 123456789012.dkr.ecr.us-east-2.amazonaws.com/gangway-trainer@sha256:abababababababababababababababababababababababababababababababab -m trainer.launch.rendezvous --member-key /run/gangway-member.pem --port 29400
ExecStop=/usr/bin/docker stop --time 10 gangway-rendezvous
TimeoutStopSec=20
Restart=always
RestartSec=5

[Install]
WantedBy=multi-user.target
GANGWAY_FILE
put /etc/systemd/system/gangway-prometheus.service 0644 <<'GANGWAY_FILE'
[Unit]
Description=Gangway: Prometheus, which scrapes the workers
After=network-online.target docker.service
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStartPre=-/usr/bin/docker rm --force gangway-prometheus
ExecStart=/usr/bin/docker run --rm --name gangway-prometheus --network host --cap-drop ALL --security-opt no-new-privileges --read-only --tmpfs /tmp:rw,exec,nosuid,nodev,mode=1777 --user 65534:65534 --pids-limit 1024 --memory 4g --log-driver none --mount type=bind,source=/etc/gangway/prometheus.yaml,target=/etc/prometheus/prometheus.yml,readonly --mount type=volume,source=gangway-prometheus,target=/prometheus prom/prometheus:v3.7.3 --config.file=/etc/prometheus/prometheus.yml --storage.tsdb.path=/prometheus --web.listen-address=127.0.0.1:9090
ExecStop=/usr/bin/docker stop --time 10 gangway-prometheus
Restart=always
RestartSec=30

[Install]
WantedBy=multi-user.target
GANGWAY_FILE
put /etc/systemd/system/gangway-trainer.service 0644 <<'GANGWAY_FILE'
[Unit]
Description=Gangway: the trainer's container
Requires=gangway-prepare.service
After=gangway-prepare.service docker.service
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStartPre=-/usr/bin/docker rm --force gangway-trainer
ExecStart=/opt/gangway/bin/run-trainer.sh
KillMode=mixed
KillSignal=SIGTERM
TimeoutStopSec=40
ExecStopPost=-/usr/bin/docker rm --force gangway-trainer
ExecStopPost=-/opt/gangway/bin/upload-record.sh
ExecStopPost=-/opt/gangway/bin/leave-node.sh
Restart=on-failure
RestartForceExitStatus=75
RestartPreventExitStatus=2 3 4 5 6
RestartSec=5

[Install]
WantedBy=multi-user.target
GANGWAY_FILE
put /etc/systemd/system/gangway-watch.timer 0644 <<'GANGWAY_FILE'
[Unit]
Description=Gangway: look every minute whether this node is still needed

[Timer]
OnBootSec=60
OnUnitInactiveSec=60
AccuracySec=1

[Install]
WantedBy=timers.target
GANGWAY_FILE
put /etc/systemd/system/gangway-record.timer 0644 <<'GANGWAY_FILE'
[Unit]
Description=Gangway: look for a changed run record every minute

[Timer]
OnBootSec=60
OnUnitInactiveSec=60
AccuracySec=1

[Install]
WantedBy=timers.target
GANGWAY_FILE
put /etc/systemd/system/gangway-watch.service 0644 <<'GANGWAY_FILE'
[Unit]
Description=Gangway: end this node's part in a job that is over
After=network-online.target

[Service]
Type=oneshot
TimeoutStartSec=300
ExecStart=/opt/gangway/bin/watch-node.sh
GANGWAY_FILE
put /etc/systemd/system/gangway-record.service 0644 <<'GANGWAY_FILE'
[Unit]
Description=Gangway: put the run record when it has changed
After=network-online.target

[Service]
Type=oneshot
ExecStart=/opt/gangway/bin/check-shared.sh
ExecStart=/opt/gangway/bin/upload-record.sh
GANGWAY_FILE
put /etc/gangway/prometheus.yaml 0644 <<'GANGWAY_FILE'
# Prometheus on the first machine: the others by their addresses. Rendered by images.observability.
# Rank 0 alone listens, on whichever machine it runs: the other machines are targets that are down, and that is right.
global:
  scrape_interval: 15s
scrape_configs:
  - job_name: gangway-trainer
    static_configs:
      - targets:
          - "10.30.0.11:9400"
          - "[fd00::12]:9400"
        labels:
          stack: "lab"
GANGWAY_FILE
}

main "$@"
exit
