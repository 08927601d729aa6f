#!/bin/sh
# Runs a pod's program and ends with its code; once the job's hours are over, the program is told by TERM and has its grace,
# and where it does not end well the code is 6. It takes a POSIX shell alone.
#
#     hours.sh SECONDS GRACE_SECONDS FILE PROGRAM...
#
# Seconds count from when the job's first pod runs, over all of its starts: so many stand in FILE of the run folder, where
# the other pods read them; and count on, should it be done before them. JOB_COMPLETION_INDEX: 0 of the first pod.
#
# Its own variables begin with _gw_, and its own programs are the system's: environment and PATH are the job's.
set -u
_gw_max=$1 _gw_grace=$2 _gw_file=$3
shift 3

_gw_used=0
_gw_heard=
_gw_over=
_gw_child=

# look: what stands in the file, where it is a number.
look() {
    _gw_seen=
    { read -r _gw_seen <"$_gw_file"; } 2>/dev/null
    case $_gw_seen in
    '' | *[!0-9]* | ???????????*) ;;
    *) _gw_used=$_gw_seen ;;
    esac
}

# up: seconds since the machine's boot, by a clock that nobody sets.
up() {
    read -r _gw_up _gw_rest </proc/uptime
    echo "${_gw_up%%.*}"
}

# count: until the hours are over; then tells the shell that waits, and kills what does not hear.
count() {
    trap - TERM INT USR1
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$PATH
    _gw_from=$(up)
    _gw_moves=
    while [ "$_gw_used" -lt "$_gw_max" ]; do
        _gw_step=$((_gw_max - _gw_used))
        [ "$_gw_step" -lt 5 ] || _gw_step=5
        sleep "$_gw_step"
        if [ "${JOB_COMPLETION_INDEX:-0}" = 0 ]; then
            # Of a time in which the machine slept no more counts than this shell did.
            _gw_now=$(up)
            [ $((_gw_now - _gw_from)) -le 60 ] || _gw_from=$((_gw_now - _gw_step))
            _gw_used=$((_gw_used + _gw_now - _gw_from)) _gw_from=$_gw_now
            echo "$_gw_used" >"$_gw_file.new" && mv -f "$_gw_file.new" "$_gw_file"
        else
            _gw_last=$_gw_used
            look
            if [ -n "$_gw_moves" ] && [ "$_gw_used" -lt $((_gw_last + _gw_step)) ]; then
                _gw_used=$((_gw_last + _gw_step))
            elif [ "$_gw_used" != "$_gw_last" ]; then
                _gw_moves=yes
            fi
        fi
    done
    kill -USR1 $$
    sleep "$_gw_grace"
    kill -KILL "$_gw_child"
}

look
if [ "$_gw_used" -ge "$_gw_max" ]; then
    echo "gangway: the job's hours are over" >&2
    exit 6
fi
trap '_gw_heard=yes; [ -z "$_gw_child" ] || kill -TERM "$_gw_child" 2>/dev/null' TERM INT
trap '_gw_heard=yes; _gw_over=yes; kill -TERM "$_gw_child" 2>/dev/null' USR1
"$@" &
_gw_child=$!
[ -z "$_gw_heard" ] || kill -TERM "$_gw_child" 2>/dev/null
count </dev/null >/dev/null 2>&1 &
_gw_count=$!
_gw_code=127
while :; do
    wait "$_gw_child"
    _gw_now=$?
    # A second wait for one that has ended already says 127: then the first one's word counts.
    [ "$_gw_now" = 127 ] && [ "$_gw_code" != 127 ] || _gw_code=$_gw_now
    [ -n "$_gw_heard" ] || break
    _gw_heard=
done
kill -KILL "$_gw_count" 2>/dev/null
if [ -n "$_gw_over" ] && [ "$_gw_code" != 0 ]; then
    echo "gangway: the job's hours are over" >&2
    exit 6
fi
exit "$_gw_code"
