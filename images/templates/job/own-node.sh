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
# Where the first word is --rdzv-endpoint=HOST:PORT, several nodes have FOLDER together, and their torchruns meet there, in
# rounds: torchrun closes a meeting for good once one of its nodes has ended. round-N is there when a node that ran
# something in round N has left it, with a line of each such node's code: who begins then begins the next. failed-N: its
# end counts as a failure, once for all nodes. over: with this code the job has ended, for all who do not run anything.
#
# GANGWAY_RUN_DIR has a file of each start, .starts/KEY.NODE.PROCESS.SECOND: until when it was at work, in what round (- for
# none), on what capacity, and once it has ended with what code, and whether it failed.
#
# Its own variables begin with _gw_: the command's environment is the job's alone. So is its PATH, in which there may be
# nothing that this script needs.
set -u
_gw_path=$PATH
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$PATH
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
_gw_round=
_gw_store=
_gw_failed=
case ${1:-} in --rdzv-endpoint=*) _gw_store=${1#*=} ;; esac
_gw_me=$(uname -n).$$
_gw_at=$(date +%s)
_gw_start=$GANGWAY_RUN_DIR/.starts/${_gw_folder##*/}.$_gw_me.$_gw_at

say() { printf 'gangway: %s\n' "$*" >&2; }

# number NAME: what is kept under that name; 0 for nothing yet, and for what no number is.
number() {
    _gw_kept=$(cat "$_gw_folder/$1" 2>/dev/null) || _gw_kept=
    case $_gw_kept in
    '' | *[!0-9]*) echo 0 ;;
    *) echo "$_gw_kept" ;;
    esac
}

keep() { echo "$2" >"$_gw_folder/$1.$_gw_me" && mv "$_gw_folder/$1.$_gw_me" "$_gw_folder/$1"; }

# at_work [CODE [failed]]: so far.
at_work() {
    echo "$((_gw_at + $(here_sec))) ${_gw_round:--} ${GANGWAY_CAPACITY:--} $*" >"$_gw_start"
}

# count NAME: how many NAME-* are kept.
count() {
    set -- "$_gw_folder/$1"-*
    [ -e "$1" ] || shift
    echo $#
}

# up_sec: by a clock that nobody sets.
up_sec() {
    read -r _gw_up _gw_rest <"${GANGWAY_UPTIME:-/proc/uptime}"
    echo "${_gw_up%%.*}"
}

# here_sec: of this start, without what the machine slept meanwhile.
here_sec() { echo $(($(up_sec) - _gw_began - $(number "slept.$_gw_me"))); }

# used_now: each node counts on from what it has found, and the longest count is the job's.
used_now() {
    _gw_sec=$((_gw_used + $(here_sec)))
    _gw_others=$(number used)
    [ "$_gw_sec" -ge "$_gw_others" ] || _gw_sec=$_gw_others
    echo "$_gw_sec"
}

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
    _gw_gone=0
    _gw_last=$(up_sec)
    while sleep 1; do
        _gw_now=$(up_sec)
        # It looks each second: more than a minute is the machine's sleep.
        [ $((_gw_now - _gw_last)) -le 60 ] ||
            keep "slept.$_gw_me" $(($(number "slept.$_gw_me") + _gw_now - _gw_last - 1))
        _gw_last=$_gw_now
        look
        # Who has lost a peer ends by itself, if it does not hang; who waits for one has nobody to wait for.
        if [ -n "$_gw_round" ] && { [ -e "$_gw_folder/round-$_gw_round" ] || over; }; then
            _gw_gone=$((_gw_gone + 1))
            [ "$_gw_gone" -ne "${GANGWAY_PEERS_SEC:-30}" ] || kill -TERM $$
        fi
        _gw_beats=$((_gw_beats + 1))
        [ $((_gw_beats % 10)) -ne 0 ] || { keep used "$(used_now)" && at_work; }
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
    leave_round 75
    if [ -z "$_gw_timer" ]; then
        (trap - TERM INT USR1 USR2 && sleep "$_gw_grace_sec" && kill -USR2 $$) &
        _gw_timer=$!
    fi
}

store_answers() {
    (
        PATH=$_gw_path
        exec python -c 'import socket, sys; socket.create_connection(sys.argv[1].rsplit(":", 1), 9)' "$_gw_store"
    ) 2>/dev/null
}

# begin WORD...: what the words say, in the place of this process; with others once there is a store to meet at.
begin() {
    trap - TERM INT USR1 USR2
    if [ -n "$_gw_store" ]; then
        store_answers || say "waits for the store at $_gw_store"
        until store_answers; do sleep 5; done
        set -- "--rdzv-id=${_gw_folder##*/}.$_gw_round" "$@"
    fi
    set -- "$(dirname "$0")/own-job.sh" "$@"
    PATH=$_gw_path
    exec /bin/sh "$@"
}

# begun: something of the job's was started here, by torchrun among several nodes.
begun() { [ -e "${GANGWAY_BEGUN:-}" ]; }

# over: for this node, which runs nothing.
over() { [ -e "$_gw_folder/over" ] && ! begun; }

leave_round() { ! begun || echo "$1" >>"$_gw_folder/round-$_gw_round"; }

# agreed CODE: what this node's end means beside those of the others in its round.
agreed() {
    _gw_words=$_gw_folder/round-$_gw_round
    case $1$_gw_late in
    0)
        # One that has left may have had something to do yet: then all begin again, and find what is left.
        if [ -e "$_gw_words" ]; then set -- 75; else keep over 0; fi
        ;;
    2) keep over 2 ;;
    esac
    [ "$1" = 0 ] || leave_round "$1"
    if [ "$1" = 1 ] && [ -z "$_gw_told" ]; then
        # Who has lost a peer fails as any other does: the one that was first says why.
        sleep "${GANGWAY_AGREE_SEC:-10}"
        if grep -sqx -e 4 -e 75 "$_gw_words" || { [ -e "$_gw_words" ] && ! begun; } || ! store_answers; then
            set -- 75
        fi
    fi
    if [ "$1" != 0 ] && { over || [ "$(number over)" != 0 ]; }; then
        set -- "$(number over)"
    fi
    echo "$1"
}

mkdir -p "$_gw_folder" "${_gw_start%/*}" || exit 1
: >"$GANGWAY_NOTICES"
if [ -n "$_gw_store" ]; then
    _gw_round=$(count round)
    GANGWAY_BEGUN=$(mktemp -d)/begun
    export GANGWAY_BEGUN
    if over; then
        say "the job has ended on all nodes: to restart it, remove $_gw_folder"
        exit "$(number over)"
    fi
    if ! (PATH=$_gw_path && command -v python && command -v torchrun) >/dev/null; then
        say "the image has no python or torchrun, which several nodes need"
        exit 2
    fi
fi
_gw_used=$(number used)
if [ -n "$_gw_max_sec" ] && [ "$_gw_used" -ge "$_gw_max_sec" ]; then
    say "the job's hours are over"
    exit 6
fi
_gw_began=$(up_sec)
rm -f "$_gw_folder/slept.$_gw_me"
at_work
# shellcheck disable=SC2154 # the child, once there is one
trap '_gw_heard=yes; [ -z "$_gw_child" ] || kill -TERM "$_gw_child" 2>/dev/null' TERM INT
trap '_gw_heard=yes; _gw_late=yes; [ -z "$_gw_child" ] || kill -TERM "$_gw_child" 2>/dev/null' USR1
trap '_gw_heard=yes; _gw_killed=yes' USR2
begin "$@" &
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
# Told before there was a script to hear it.
[ "$_gw_code" != 143 ] || _gw_code=75
kill "$_gw_watch" ${_gw_timer:+"$_gw_timer"} 2>/dev/null
keep used "$(used_now)"
if [ -n "$_gw_killed" ]; then
    say "the command did not stop within $_gw_grace_sec s and is killed: unsaved work is lost"
    kill -KILL "$_gw_child" 2>/dev/null
    _gw_code=137
fi
[ -z "$_gw_round" ] || _gw_code=$(agreed "$_gw_code")
if [ -n "$_gw_late" ] && [ "$_gw_code" != 0 ]; then
    say "the job's hours are over"
    _gw_code=6
elif [ "$_gw_code" = 1 ] && [ -z "$_gw_told" ]; then
    _gw_failed=failed
    if [ -n "$_gw_round" ]; then
        begun || _gw_round=$_gw_round.$(date +%s)
        : >"$_gw_folder/failed-$_gw_round"
        _gw_failures=$(count failed)
    else
        _gw_failures=$(($(number failures) + 1))
        keep failures "$_gw_failures"
    fi
    say "failure $_gw_failures of $((_gw_max_restarts + 1))"
    if [ "$_gw_failures" -gt "$_gw_max_restarts" ]; then
        [ -z "$_gw_round" ] || keep over 5
        _gw_code=5
    fi
fi
at_work "$_gw_code" $_gw_failed
rm -f "$_gw_folder/slept.$_gw_me"
exit "$_gw_code"
