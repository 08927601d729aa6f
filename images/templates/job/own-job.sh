#!/bin/sh
# Runs a job's own command on one node and ends with a code that every engine knows: 0 done, 2 bad input, 4 this node is
# unfit, 75 interrupted (start it again), 1 anything else. It takes a POSIX shell alone; torchrun is the image's own.
#
#     own-job.sh -- COMMAND...                          the command, once
#     own-job.sh TORCHRUN_ARGUMENT... -- COMMAND...     torchrun with these, and the command as each of its processes
#
# GANGWAY_NOTICES: the file in which the command finds what this node was told, a JSON line each. GANGWAY_CODES_BAD_INPUT,
# GANGWAY_CODES_UNFIT and GANGWAY_CODES_INTERRUPTED: the command's own exit codes of these kinds, with blanks between.
# GANGWAY_HOLD_BACK_SEC: how long a plain failure waits, where several nodes end together and an engine goes by the first.
# GANGWAY_BEGUN: a file that is there once torchrun has begun a process of the command.
# A TERM goes on to the command, which has until whoever sent it loses patience.
#
# Its own variables begin with _gw_: the command's environment is the job's alone. So is its PATH, in which there may be
# nothing that this script needs.
set -u
_gw_path=$PATH
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$PATH

_gw_heard=
_gw_told=
_gw_process=
_gw_child=

# told: what is left to do once the trap has passed the signal on. A trap that began processes could meet the child's end.
told() {
    _gw_heard=
    if [ -z "$_gw_told$_gw_process" ] && [ -n "${GANGWAY_NOTICES:-}" ]; then
        printf '{"kind": "stop", "seen_at": %s, "deadline": ""}\n' "$(date +%s)" >>"$GANGWAY_NOTICES"
    fi
    _gw_told=yes
}

# run COMMAND...: as a child, so that the trap is heard while it runs; sets `_gw_code`. A program, and nothing of the
# shell's that has its name.
run() {
    (PATH=$_gw_path && exec "$@") &
    _gw_child=$!
    [ -z "$_gw_heard" ] || kill -TERM "$_gw_child" 2>/dev/null
    _gw_code=127
    while :; do
        wait "$_gw_child"
        _gw_now=$?
        # A second wait for one that has ended already says 127: then the first one's word counts.
        [ "$_gw_now" = 127 ] && [ "$_gw_code" != 127 ] || _gw_code=$_gw_now
        [ -n "$_gw_heard" ] || break
        told
    done
}

is_among() {
    for _gw_each in $2; do
        [ "$_gw_each" != "$1" ] || return 0
    done
    return 1
}

# meaning CODE: what the command's own code means to an engine. Who is told and dies of it has been interrupted.
meaning() {
    if [ "$1" = 0 ]; then
        echo 0
    elif is_among "$1" "${GANGWAY_CODES_BAD_INPUT-2}"; then
        echo 2
    elif is_among "$1" "${GANGWAY_CODES_UNFIT-4}"; then
        echo 4
    elif is_among "$1" "${GANGWAY_CODES_INTERRUPTED-75}"; then
        echo 75
    elif [ -n "$_gw_told" ] && [ "$1" = 143 ]; then
        echo 75
    elif [ "$1" = 126 ] || [ "$1" = 127 ]; then
        # a shell's: no such program, or none that can be run
        echo 2
    else
        echo 1
    fi
}

# ended CODE: what all processes of this node mean together, `CODE` being torchrun's. Untold, the first of them that
# failed says it, for torchrun ends the others; told, the one that says most.
ended() {
    _gw_all=
    # shellcheck disable=SC2045 # the names are numbers
    for _gw_file in $(ls -tr "$GANGWAY_ENDS"); do
        _gw_now=$(meaning "$(cat "$GANGWAY_ENDS/$_gw_file")")
        if [ -z "$_gw_told" ] && [ "$_gw_now" != 0 ]; then
            echo "$_gw_now"
            return
        fi
        _gw_all="$_gw_all $_gw_now"
    done
    for _gw_now in 2 4 1 75; do
        if is_among "$_gw_now" "$_gw_all"; then
            echo "$_gw_now"
            return
        fi
    done
    # None has begun, or all were done: torchrun's own word, and 75 where it was told before anything began.
    if [ -n "$_gw_told" ] && [ -z "$_gw_all" ]; then
        echo 75
    elif [ -z "$_gw_all" ] && { [ "$1" = 126 ] || [ "$1" = 127 ]; }; then
        # no torchrun here
        echo 2
    elif [ -n "$_gw_all" ] || [ "$1" = 0 ]; then
        echo 0
    else
        echo 1
    fi
}

# leave CODE: with it. Who has lost another node fails as any other does: while it waits, the one that says why is seen.
leave() {
    if [ "$1" = 1 ] && [ -z "$_gw_told$_gw_heard" ] && [ -n "${GANGWAY_HOLD_BACK_SEC:-}" ]; then
        (exec sleep "$GANGWAY_HOLD_BACK_SEC") &
        _gw_child=$!
        [ -z "$_gw_heard" ] || kill -TERM "$_gw_child" 2>/dev/null
        wait "$_gw_child"
    fi
    exit "$1"
}

# shellcheck disable=SC2154 # the child, once there is one
trap '_gw_heard=yes; [ -z "$_gw_child" ] || kill -TERM "$_gw_child" 2>/dev/null' TERM INT
if [ "${1:-}" = --process ]; then
    shift
    _gw_process=yes
    _gw_file=$GANGWAY_ENDS/${LOCAL_RANK:-0}
    rm -f "$_gw_file"
    [ -z "${GANGWAY_BEGUN:-}" ] || : >"$GANGWAY_BEGUN"
    run "$@"
    [ "$_gw_code" = 0 ] || echo "gangway: rank ${RANK:-0} ended with $_gw_code" >&2
    echo "$_gw_code" >"$_gw_file.new" && mv "$_gw_file.new" "$_gw_file"
    exit "$_gw_code"
fi
if [ "$1" = -- ]; then
    shift
    run "$@"
    [ "$_gw_code" = 0 ] || echo "gangway: the command ended with $_gw_code" >&2
    leave "$(meaning "$_gw_code")"
fi

GANGWAY_ENDS=$(mktemp -d)
export GANGWAY_ENDS
trap 'rm -rf "$GANGWAY_ENDS"' EXIT
# The words before -- are torchrun's: the list is turned round once, word by word, with our own put between.
_gw_before=yes
for _gw_word in "$@"; do
    shift
    if [ -n "$_gw_before" ] && [ "$_gw_word" = -- ]; then
        _gw_before=
        set -- "$@" --no-python /bin/sh "$0" --process
    elif [ -n "$_gw_before" ] && [ "$_gw_word" = --standalone ]; then
        # In a file, for a port is everybody's. Heartbeats, which nobody needs here, would have it grow.
        set -- "$@" --rdzv-backend=c10d "--rdzv-id=$$" "--rdzv-endpoint=$GANGWAY_ENDS/.store" \
            --rdzv-conf=store_type=file,keep_alive_interval=3600
    else
        set -- "$@" "$_gw_word"
    fi
done
run torchrun "$@"
leave "$(ended "$_gw_code")"
