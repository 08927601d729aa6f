#!/bin/sh
set -u
_gw_path=$PATH
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$PATH

_gw_heard=
_gw_told=
_gw_process=
_gw_child=

told() {
_gw_heard=
if [ -z "$_gw_told$_gw_process" ] && [ -n "${GANGWAY_NOTICES:-}" ]; then
printf '{"kind": "stop", "seen_at": %s, "deadline": ""}\n' "$(date +%s)" >>"$GANGWAY_NOTICES"
fi
_gw_told=yes
}

run() {
(PATH=$_gw_path && exec "$@") &
_gw_child=$!
[ -z "$_gw_heard" ] || kill -TERM "$_gw_child" 2>/dev/null
_gw_code=127
while :; do
wait "$_gw_child"
_gw_now=$?
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
echo 2
else
echo 1
fi
}

ended() {
_gw_all=
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
if [ -n "$_gw_told" ] && [ -z "$_gw_all" ]; then
echo 75
elif [ -z "$_gw_all" ] && { [ "$1" = 126 ] || [ "$1" = 127 ]; }; then
echo 2
elif [ -n "$_gw_all" ] || [ "$1" = 0 ]; then
echo 0
else
echo 1
fi
}

leave() {
if [ "$1" = 1 ] && [ -z "$_gw_told$_gw_heard" ] && [ -n "${GANGWAY_HOLD_BACK_SEC:-}" ]; then
(exec sleep "$GANGWAY_HOLD_BACK_SEC") &
_gw_child=$!
[ -z "$_gw_heard" ] || kill -TERM "$_gw_child" 2>/dev/null
wait "$_gw_child"
fi
exit "$1"
}

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
_gw_before=yes
for _gw_word in "$@"; do
shift
if [ -n "$_gw_before" ] && [ "$_gw_word" = -- ]; then
_gw_before=
set -- "$@" --no-python /bin/sh "$0" --process
elif [ -n "$_gw_before" ] && [ "$_gw_word" = --standalone ]; then
set -- "$@" --rdzv-backend=c10d "--rdzv-id=$$" "--rdzv-endpoint=$GANGWAY_ENDS/.store" \
--rdzv-conf=store_type=file,keep_alive_interval=3600
else
set -- "$@" "$_gw_word"
fi
done
run torchrun "$@"
leave "$(ended "$_gw_code")"
