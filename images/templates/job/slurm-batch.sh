#!/bin/bash
# The batch script of a job in Slurm: slurm-batch.sh FOLDER. It begins the job's step as often as its exit codes ask for
# (gangway/jobs/base.py says what they mean) and leaves what it knows in FOLDER: slurm-id, starts, nodes, started (ms),
# stretches, failures, interruptions, and at last end: WORD CODE TIME REASON. What the job had used on engines before is
# none of that: it is BEFORE_MS and the like. Where there is no room for that it waits for GANGWAY_ROOM_SEC, and then
# gives up; GANGWAY_SLURM_SEC is its pause where Slurm has not done what it was asked for.
#
# Within one allocation it begins again after an interruption and after a failure. It is requeued where it was told to
# leave and Slurm does not do that itself, and hands over to a job that excludes a node which was not fit.
set -u
folder=$1
# shellcheck source=/dev/null
. "$folder/batch.env"
is_told=
is_late=
is_heard=
srun=
killer=
exec {silent}<> <(:) # from which nothing ever comes

# nap SEC: as sleep, by this shell itself: who is killed in it leaves no process.
nap() {
    local code=0
    read -rt "$1" -u "$silent" || code=$?
    [ "$code" -gt 128 ]
}

# put NAME LINE...: whole or not at all.
put() {
    local until=$(($(up_ms) + ${GANGWAY_ROOM_SEC:-300} * 1000))
    until printf '%s\n' "${@:2}" >"$folder/.$1" && mv "$folder/.$1" "$folder/$1"; do
        if [ ! -d "$folder" ] || [ "$(up_ms)" -ge "$until" ]; then
            echo "gangway: cannot write $1 in $folder; free up space. Giving up the job: ${*:2}"
            exit 1
        fi
        nap 2
    done
}

get() {
    cat "$folder/$1" 2>/dev/null || echo "$2"
}

# end WORD CODE REASON...: nothing more comes of this job.
end() {
    put end "$1 $2 $(now_ms) ${*:3}"
    exit 0
}

# off_nodes [UP_BEGAN]: what was begun is noted as a stretch, in the form of gangway/jobs/run_intervals.py. Its length is what
# `beat` has said last, or what has gone by since UP_BEGAN, where that is hardly more: the machine has not slept.
off_nodes() {
    local began nodes stretches ended since
    read -r began nodes <"$folder/on-nodes"
    ended=$(stat -c %.3Y "$folder/on-nodes")
    ended=${ended/[.,]/}
    since=$(($(up_ms) - ${1:-0}))
    [ -z "${1:-}" ] || [ $((began + since - ended)) -ge 60000 ] || ended=$((began + since))
    mapfile -t stretches <"$folder/stretches"
    # Once: a kill may come between any two steps, and then the start after it is here with the same one.
    grep -q "^$began " "$folder/stretches" ||
        put stretches "${stretches[@]}" "$began $((ended > began ? ended : began)) $nodes"
    rm "$folder/on-nodes"
}

# used_ms: on nodes so far, here and before.
used_ms() {
    local began ended sum=$BEFORE_MS
    while read -r began ended _; do
        sum=$((sum + ended - began))
    done <"$folder/stretches"
    echo "$sum"
}

# now_ms: a date, for people.
now_ms() {
    date +%s%3N
}

# up_ms: since the machine's boot, by a clock that nobody sets.
up_ms() {
    local up
    read -r up _ </proc/uptime
    echo $((10#${up/./}0))
}

# came_to MS: when the stretch was last known to go on is the time of its file, whatever the clocks say.
came_to() {
    touch -c -d "@${1::-3}.${1: -3}" "$folder/on-nodes"
}

# beat BEGAN: while this script lives; of a longer pause, in which the machine slept, no more than its own counts.
beat() {
    local from now came=$1
    from=$(up_ms)
    while nap 20 && kill -0 $$ 2>/dev/null; do
        now=$(up_ms)
        came=$((came + (now - from < 60000 ? now - from : 20000))) from=$now
        came_to "$came"
    done
}

# heard: what a trap has noted is done outside of it, which the step's end must not meet at work.
heard() {
    [ -n "$is_heard" ] || return 1
    is_heard=
    stop
}

# stop: the step is told, which has its grace, and then it is killed. One that has not begun finds the notice.
stop() {
    [ -n "$srun" ] || return 0
    # Before the signal, which all processes of the step get at once.
    echo "{\"kind\": \"stop\", \"seen_at\": $(date +%s), \"deadline\": \"\"}" >>"$folder/notices.jsonl"
    (signal TERM && nap "$GRACE_SEC" && signal KILL) &
    killer="$killer $!"
    disown
}

# signal NAME: to the step, found by its name, for Slurm numbers only steps that it has made; as often as it takes.
# Where there is none yet, srun waits for it, which the signal ends. (To one whose step runs it would mean: kill it.)
signal() {
    local steps id
    while :; do
        if steps=$(squeue --noheader --steps --jobs="$SLURM_JOB_ID" --format='%i %j' 2>/dev/null); then
            id=$(grep " $step\$" <<<"$steps" | cut -d' ' -f1)
            if [ -z "$id" ]; then
                has_begun || kill "-$1" "$srun"
                return 0
            fi
            if scancel --quiet "--signal=$1" "$id"; then return 0; fi
        fi
        nap 2
    done
}

# has_begun: on any node; what it leaves first, or its code.
has_begun() {
    [ -n "$(ls -A "$folder/codes")" ]
}

# answers: Slurm's controller.
answers() {
    scontrol ping 2>/dev/null | grep -q ' is UP'
}

# await_slurm: that its controller is away is no end of the job. It cannot be told of a cancel either.
await_slurm() {
    answers && return
    echo "gangway: Slurm's controller does not answer; the job continues once it does"
    until answers; do
        [ ! -e "$folder/cancel" ] || end cancelled 0 "cancelled"
        nap "${GANGWAY_SLURM_SEC:-5}"
    done
    # An srun that finds it without word of its nodes yet asks again after minutes.
    nap "${GANGWAY_SLURM_SEC:-15}"
}

# gpus: srun's word for all GPUs of the job's nodes. --exclusive has brought them, and a step has none of those unless it
# asks. Where nodes differ, which the first one's number does not say, it asks for the sum, which needs one on each.
gpus() {
    local job each sum=0
    [ -n "${SLURM_GPUS_ON_NODE:-}" ] || return 0
    job=$(scontrol show job --details "$SLURM_JOB_ID" 2>/dev/null)
    while read -r each; do
        sum=$((sum + each))
    done < <(grep -o 'JOB_GRES=.*' <<<"$job" | grep -o 'gpu:[^,]*' | grep -o '[0-9]*$')
    if [ "$sum" = 0 ] || [ "$sum" = $((SLURM_GPUS_ON_NODE * SLURM_NNODES)) ]; then
        echo "--gres=gpu:$SLURM_GPUS_ON_NODE"
    elif ! grep -q ' GRES=(null)' <<<"$job"; then
        echo "--gpus=$sum"
    fi
}

# meaning CODE: of all nodes together, CODE being srun's. Who was told says what says most; else the first that failed.
meaning() {
    local file code first=
    # shellcheck disable=SC2045 # the names are nodes'
    for file in $(ls -tr "$folder/codes"); do
        code=$(cat "$folder/codes/$file")
        [ "$code" = 0 ] || first=${first:-$code}
    done
    if [ -n "$is_told$is_late" ]; then
        for code in 2 4 75; do
            if grep -qxs "$code" "$folder"/codes/*; then
                echo "$code"
                return
            fi
        done
    fi
    echo "${first:-$1}"
}

# leave: told from outside. Slurm begins it again by itself where it has requeued it, and not where it was cancelled.
leave() {
    local state
    await_slurm
    state=$(scontrol show job --oneliner "$SLURM_JOB_ID" | grep -o 'JobState=[A-Z_]*' | cut -d= -f2)
    echo "gangway: stopped and saved; Slurm's state: $state"
    case $state in
        RUNNING | PREEMPTED)
            # Slurm ends the script when it requeues it, and an end with another code could be taken for the job's.
            trap 'exit 0' TERM
            scontrol requeue "$SLURM_JOB_ID"
            nap 60
            ;;
        CANCELLED) end cancelled 75 "cancelled in Slurm" ;;
    esac
    exit 75
}

# hand_over: to a job of the same words that leaves the unfit nodes out.
hand_over() {
    local unfit words left next
    unfit=$(cd "$folder/codes" && grep -lx 4 -- * | paste -sd' ')
    [ -n "$unfit" ] || return 0 # srun's own word, of no node
    await_slurm
    : >>"$folder/excluded"
    for node in $unfit; do
        scontrol update "nodename=$node" state=drain "reason=gangway: unfit for $JOB" 2>&1 ||
            echo "gangway: this user cannot drain $node; excluding it"
        echo "$node" >>"$folder/excluded"
    done
    left=$(sinfo --noheader --Node --partition="$PARTITION" --format=%N | sort -u | grep -cvxFf "$folder/excluded")
    [ "$left" -ge "$MIN_NODES" ] || end failed 4 "unfit: $unfit; too few other nodes"
    mapfile -t words <"$folder/sbatch.words"
    # sbatch would hand on what is this allocation's alone.
    # shellcheck disable=SC2046 # names
    next=$(unset -v $(compgen -e | grep -xE "$OF_ALLOCATION" | grep -vxE "$REACH") &&
        sbatch --parsable --exclude="$(paste -sd, "$folder/excluded")" "${words[@]}") ||
        end failed 4 "unfit: $unfit; cannot submit the job without it"
    put slurm-id "${next%%;*}"
    echo "gangway: $unfit is unfit for this job, which continues as Slurm job ${next%%;*}"
    exit 0
}

# all_failures: so far, here and before.
all_failures() {
    echo $((BEFORE_FAILURES + $(get failures 0)))
}

# failed CODE: is counted, and the last one ends the job.
failed() {
    put failures $(($(get failures 0) + 1))
    [ "$(all_failures)" -le "$MAX_RESTARTS" ] ||
        end failed "$1" "failed with exit code $1, failure $(all_failures) of $((MAX_RESTARTS + 1))"
}

# interrupted: of itself, and begun again, but not for ever. A command that ends so at once would use none of its hours.
interrupted() {
    put interruptions $(($(get interruptions 0) + 1))
    [ $((BEFORE_INTERRUPTIONS + $(get interruptions 0) + $(all_failures))) -le "$MOST_RESTARTS" ] ||
        end failed 5 "$TOO_OFTEN"
}

# not_begun CODE: srun's own failure, before any node began: no start of the job, and no failure of its.
not_begun() {
    put starts $(($(get starts 1) - 1))
    [ -z "$is_told" ] || leave
    if ! answers; then
        tries=0
        await_slurm
    elif [ "$((tries += 1))" -ge 5 ]; then
        end failed "$1" "srun failed $tries times before the command began: $(srun_said)"
    else
        nap "${GANGWAY_SLURM_SEC:-5}"
    fi
}

# srun_said: last of all.
srun_said() {
    tail -c 20000 "$folder/log" | grep -a '^srun: ' | tail -n 1 | LC_ALL=C tr -cd '[:print:]' | cut -c -300
}

# Once its end is known nothing more comes of it, however often Slurm begins it.
[ ! -e "$folder/end" ] || exit 0
# Before anything else: a submit that was cut off has not written it down.
put slurm-id "$SLURM_JOB_ID"
touch "$folder/stretches"
# A start that was killed came as far as it has said.
[ ! -e "$folder/on-nodes" ] || off_nodes
trap 'is_told=yes is_heard=yes' TERM
trap 'is_late=yes is_heard=yes' USR1
number=0
tries=0 # in a row that srun has failed by itself
while :; do
    if [ -e "$folder/cancel" ]; then
        end cancelled 0 "cancelled"
    fi
    left_ms=$((MAX_MS - $(used_ms)))
    [ "$left_ms" -gt 0 ] || end over-hours 0 "its hours are over"
    rm -rf "$folder/codes" && mkdir "$folder/codes"
    put starts $(($(get starts 0) + 1))
    put nodes "$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd' ')"
    [ -e "$folder/started" ] || put started "$(now_ms)"
    : >"$folder/notices.jsonl"
    [ -z "$is_told" ] || is_heard=yes
    began=$(now_ms) up_began=$(up_ms)
    put on-nodes "$began $SLURM_NNODES"
    came_to "$began"
    beat "$began" &
    beat=$!
    disown
    step=gangway-$((number += 1))
    gpus=$(gpus)
    srun --job-name="$step" --nodes="$SLURM_NNODES" --ntasks-per-node=1 --kill-on-bad-exit=1 --unbuffered \
        --propagate=NONE ${gpus:+"$gpus"} /bin/bash "$folder/slurm-node.sh" "$folder" &
    srun=$!
    (nap "$((left_ms / 1000)).$(printf %03d $((left_ms % 1000)))" && kill -USR1 $$) &
    timer=$!
    disown
    while :; do
        # Told before there was a step to tell, or while the last signal was passed on: `wait` would not wake for it.
        heard || :
        wait "$srun"
        code=$?
        [ -n "$is_heard" ] || break
    done
    srun=
    # Who would kill the step: where Slurm tracks processes by their parents alone, what is left of this script outlives
    # it.
    # shellcheck disable=SC2086 # none or several
    kill -KILL $killer "$timer" "$beat" 2>/dev/null
    killer=
    off_nodes "$up_began"
    code=$(meaning "$code")
    [ "$code" != 0 ] || end "done" 0
    [ ! -e "$folder/cancel" ] || end cancelled "$code" "cancelled while it ran"
    [ -z "$is_late" ] || end over-hours "$code" "its hours are over"
    has_begun || {
        not_begun "$code"
        continue
    }
    tries=0
    case $code in
        2) end bad-input 2 "it would fail again: its log says why" ;;
        3 | 5) end failed "$code" "the trainer ended it on all nodes" ;;
        6) end over-hours 6 "its hours are over" ;;
        4) hand_over && failed 4 ;;
        75)
            [ -z "$is_told" ] || leave
            interrupted
            ;;
        *)
            [ -z "$is_told" ] || leave
            failed "$code"
            ;;
    esac
    nap 1
done
