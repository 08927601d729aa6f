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
    for container in gangway-{trainer,rendezvous,prometheus,dcgm-exporter,node-exporter}; do
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
