#!/bin/sh
# Runs a job's own command on a node of a stack, in its container, through own-job.sh beside it, and adds what is known of
# the job as a whole: own-job.sh's codes, and 5 after too many failures, 6 when the job's hours are over.
#
#     own-node.sh HELD FOLDER MAX_SEC MAX_RESTARTS GRACE_SEC WORD...     the words are own-job.sh's
#
# HELD is where the machine keeps what its cloud says of its end (images/node/notices.py): each kind is a line in
# GANGWAY_NOTICES once, and all but two are a TERM for the command. FOLDER outlives the node where GANGWAY_RUN_DIR does,
# and holds what the job has used so far: seconds and failures, over all starts. MAX_SEC is empty for no end. Who is told
# has GRACE_SEC; the container ends with this script, and all that is left in it.
#
# Its own variables begin with _gw_: the command's environment is the job's alone.
set -u
_gw_held=$1
_gw_folder=$2
_gw_max_sec=$3
_gw_max_restarts=$4
_gw_grace_sec=$5
shift 5
_gw_heard=
_gw_told=
_gw_late=
_gw_killed=
_gw_child=
_gw_timer=

say() { printf 'gangway: %s\n' "$*" >&2; }

# number NAME: what is kept under that name; 0 for nothing yet, and for what no number is.
number() {
    _gw_kept=$(cat "$_gw_folder/$1" 2>/dev/null) || _gw_kept=
    case $_gw_kept in
    '' | *[!0-9]*) echo 0 ;;
    *) echo "$_gw_kept" ;;
    esac
}

keep() { echo "$2" >"$_gw_folder/$1.new" && mv "$_gw_folder/$1.new" "$_gw_folder/$1"; }

# up_sec: by a clock that nobody sets.
up_sec() {
    read -r _gw_up _gw_rest <"${GANGWAY_UPTIME:-/proc/uptime}"
    echo "${_gw_up%%.*}"
}

used_now() { echo $((_gw_used + $(up_sec) - _gw_began)); }

# look: what the machine was told since the last look.
look() {
    [ -r "$_gw_held" ] || return 0
    while read -r _gw_kind _gw_deadline; do
        case " $_gw_seen " in *" $_gw_kind "*) continue ;; esac
        _gw_seen="$_gw_seen $_gw_kind"
        printf '{"kind": "%s", "seen_at": %s, "deadline": "%s"}\n' "$_gw_kind" "$(date +%s)" "$_gw_deadline" \
            >>"$GANGWAY_NOTICES"
        case $_gw_kind in
        rebalance | host-maintenance) ;;
        *) kill -TERM $$ ;;
        esac
    done <"$_gw_held"
}

# watch: beside the command, each second, until it is killed. The shell that runs the command has its number in $$.
watch() {
    trap - TERM INT USR1 USR2
    _gw_seen=
    _gw_beats=0
    while sleep 1; do
        look
        _gw_beats=$((_gw_beats + 1))
        [ $((_gw_beats % 10)) -ne 0 ] || keep used "$(used_now)"
        if [ -n "$_gw_max_sec" ] && [ "$(used_now)" -ge "$_gw_max_sec" ]; then
            printf '{"kind": "max-hours", "seen_at": %s, "deadline": ""}\n' "$(date +%s)" >>"$GANGWAY_NOTICES"
            kill -USR1 $$
            return
        fi
    done
}

# told: once, from when on the command's time runs. Outside of the trap, which could meet the child's end.
told() {
    _gw_heard=
    _gw_told=yes
    if [ -z "$_gw_timer" ]; then
        (trap - TERM INT USR1 USR2 && sleep "$_gw_grace_sec" && kill -USR2 $$) &
        _gw_timer=$!
    fi
}

mkdir -p "$_gw_folder" || exit 1
: >"$GANGWAY_NOTICES"
_gw_used=$(number used)
if [ -n "$_gw_max_sec" ] && [ "$_gw_used" -ge "$_gw_max_sec" ]; then
    say "the job's hours are over"
    exit 6
fi
_gw_began=$(up_sec)
# shellcheck disable=SC2154 # the child, once there is one
trap '_gw_heard=yes; [ -z "$_gw_child" ] || kill -TERM "$_gw_child" 2>/dev/null' TERM INT
trap '_gw_heard=yes; _gw_late=yes; [ -z "$_gw_child" ] || kill -TERM "$_gw_child" 2>/dev/null' USR1
trap '_gw_heard=yes; _gw_killed=yes' USR2
/bin/sh "$(dirname "$0")/own-job.sh" "$@" &
_gw_child=$!
[ -z "$_gw_heard" ] || kill -TERM "$_gw_child" 2>/dev/null
watch &
_gw_watch=$!
_gw_code=127
while :; do
    wait "$_gw_child"
    _gw_now=$?
    # A second wait for one that has ended already says 127: then the first one's word counts.
    [ "$_gw_now" = 127 ] && [ "$_gw_code" != 127 ] || _gw_code=$_gw_now
    [ -z "$_gw_killed" ] || break
    [ -n "$_gw_heard" ] || break
    told
done
kill "$_gw_watch" ${_gw_timer:+"$_gw_timer"} 2>/dev/null
keep used "$(used_now)"
if [ -n "$_gw_killed" ]; then
    say "the command had $_gw_grace_sec s after it was told and is killed: what it had not saved is lost"
    kill -KILL "$_gw_child" 2>/dev/null
    _gw_code=137
fi
if [ -n "$_gw_late" ] && [ "$_gw_code" != 0 ]; then
    say "the job's hours are over"
    exit 6
fi
if [ "$_gw_code" = 1 ] && [ -z "$_gw_told" ]; then
    _gw_failures=$(($(number failures) + 1))
    keep failures "$_gw_failures"
    say "failure $_gw_failures of $((_gw_max_restarts + 1))"
    [ "$_gw_failures" -le "$_gw_max_restarts" ] || exit 5
fi
exit "$_gw_code"
