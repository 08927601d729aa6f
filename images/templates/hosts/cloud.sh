# shellcheck shell=bash
# Functions of existing machines for common.sh: no metadata, no group, no log service. Buckets are reached with the machine's
# own credentials.

# close-metadata.sh: rented machines may have one: most clouds', that of containers on EC2, Scaleway's, Tencent's, Azure's,
# Alibaba's; over IPv6 EC2's, Google's, Oracle's and OpenStack's.
export METADATA_IPV4='169.254.169.254 169.254.170.2 169.254.170.23 169.254.42.42 169.254.0.23 168.63.129.16 100.100.100.200'
export METADATA_IPV6='fd00:ec2::254 fd00:ec2::23 fd20:ce::254 fd00:c1::a9fe:a9fe fe80::a9fe:a9fe'

leaving() { [ "$(systemctl is-system-running)" = stopping ]; }
own_capacity() { echo on-demand; }
# Its owner may not have restarted it for months.
made_for_job() { false; }
group_waits() { false; }
let_go() { :; }

# systemd logs to the journal.
send_event() { log "event: $*"; }

replace_node() { log "this machine is not replaced: fix it; it is checked again within 30 minutes"; }
stop_filling() { :; }
leave_group() { :; }

# put_blob FILE NAME: az://ACCOUNT/CONTAINER/FOLDER names no host of its own.
put_blob() {
    local account container folder
    IFS=/ read -r account container folder <<<"${BUCKET_URI#az://}"
    az storage blob upload --auth-mode login --overwrite --only-show-errors --output none \
        --account-name "$account" --container-name "$container" --name "${folder:+$folder/}$2" --file "$1"
}

# put_copy FILE TARGET: atomically.
put_copy() { install -D -m 0644 "$1" "$2.part" && mv "$2.part" "$2"; }

put_object() {
    case $BUCKET_URI in
    s3://*) aws s3 cp --only-show-errors "$1" "$BUCKET_URI/$2" ;;
    gs://*) gcloud storage cp --quiet "$1" "$BUCKET_URI/$2" ;;
    az://*) put_blob "$1" "$2" ;;
    *) put_copy "$1" "$BUCKET_URI/$2" ;;
    esac
}

# put_blobs FOLDER KEY: each file by its own: `az storage blob upload-batch` asks what the folder is really called, and
# opens it by that name, which is the job's to change.
put_blobs() {
    local name deadline=$(($(up_sec /proc/uptime) + RESULTS_SEC))
    while IFS= read -r -d '' name; do
        if [ "$(up_sec /proc/uptime)" -ge "$deadline" ]; then
            echo "not all files uploaded within $RESULTS_SEC s"
            return 1
        fi
        put_blob "$1/$name" "$2/$name" </dev/null || return
    done < <(find "$1/" -type f -printf '%P\0')
}

# put_folder FOLDER KEY: the folder is one that this shell has open, and not each process of a client's. The kernel shows it
# as a link, the only one there: all in it are files.
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

# The machine's administrator has logged it in, where the registry wants that.
registry_login() { :; }
