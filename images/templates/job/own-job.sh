#!/bin/sh
# Runs a job's own command on one node and ends with a code that every engine knows: 0 done, 2 bad input, 4 this node is
# unfit, 75 interrupted (start it again), 1 anything else. It takes a POSIX shell alone; torchrun is the image's own.
#
#     own-job.sh -- COMMAND...                          the command, once
#     own-job.sh TORCHRUN_ARGUMENT... -- COMMAND...     torchrun with these, and the command as each of its processes
#
# GANGWAY_NOTICES: the file in which the command finds what this node was told, a JSON line each. GANGWAY_CODES_BAD_INPUT,
# GANGWAY_CODES_UNFIT and GANGWAY_CODES_INTERRUPTED: the command's own exit codes of these kinds, with blanks between.
# A TERM goes on to the command, which has until whoever sent it loses patience.
set -u

is_told=
is_process=
child=

# shellcheck disable=SC2317 # a trap's
told() {
    if [ -z "$is_told$is_process" ] && [ -n "${GANGWAY_NOTICES:-}" ]; then
        printf '{"kind": "stop", "seen_at": %s, "deadline": ""}\n' "$(date +%s)" >>"$GANGWAY_NOTICES"
    fi
    is_told=yes
    [ -z "$child" ] || kill -TERM "$child" 2>/dev/null
}

# run COMMAND...: as a child, so that the trap is heard while it runs; sets `code`.
run() {
    "$@" &
    child=$!
    [ -z "$is_told" ] || kill -TERM "$child" 2>/dev/null
    while :; do
        wait "$child"
        code=$?
        kill -0 "$child" 2>/dev/null || break
    done
    child=
}

is_among() {
    for each in $2; do
        [ "$each" != "$1" ] || return 0
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
    elif [ -n "$is_told" ] && [ "$1" = 143 ]; then
        echo 75
    elif [ "$1" = 126 ] || [ "$1" = 127 ]; then
        echo 2 # a shell's: no such program, or none that can be run
    else
        echo 1
    fi
}

# ended CODE: what all processes of this node mean together, `CODE` being torchrun's. Untold, the first of them that
# failed says it, for torchrun ends the others; told, the one that says most.
ended() {
    all=
    # shellcheck disable=SC2045 # the names are numbers
    for file in $(ls -tr "$GANGWAY_ENDS"); do
        each=$(meaning "$(cat "$GANGWAY_ENDS/$file")")
        if [ -z "$is_told" ] && [ "$each" != 0 ]; then
            echo "$each"
            return
        fi
        all="$all $each"
    done
    for each in 2 4 1 75; do
        if is_among "$each" "$all"; then
            echo "$each"
            return
        fi
    done
    # None has begun, or all were done: torchrun's own word, and 75 where it was told before anything began.
    if [ -n "$is_told" ] && [ -z "$all" ]; then
        echo 75
    elif [ -z "$all" ] && { [ "$1" = 126 ] || [ "$1" = 127 ]; }; then
        echo 2 # no torchrun here
    elif [ -n "$all" ] || [ "$1" = 0 ]; then
        echo 0
    else
        echo 1
    fi
}

trap told TERM INT
if [ "${1:-}" = --process ]; then
    shift
    is_process=yes
    file=$GANGWAY_ENDS/${LOCAL_RANK:-0}
    rm -f "$file"
    run "$@"
    echo "$code" >"$file.new" && mv "$file.new" "$file"
    exit "$code"
fi
if [ "$1" = -- ]; then
    shift
    run "$@"
    exit "$(meaning "$code")"
fi

GANGWAY_ENDS=$(mktemp -d)
export GANGWAY_ENDS
trap 'rm -rf "$GANGWAY_ENDS"' EXIT
# The words before -- are torchrun's: the list is turned round once, word by word, with our own put between.
before=yes
for word in "$@"; do
    shift
    if [ -n "$before" ] && [ "$word" = -- ]; then
        before=
        set -- "$@" --no-python /bin/sh "$0" --process
    else
        set -- "$@" "$word"
    fi
done
run torchrun "$@"
exit "$(ended "$code")"
