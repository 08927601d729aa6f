#!/usr/bin/env bash
# Saves Slurm's accounting database: slurm-save.sh FILE. A timer and the end of slurmdbd run it, as the user slurm. FILE is
# replaced only by a complete dump of a database that knows a cluster.
set -euo pipefail
# Set by systemd when slurmdbd ends: do not save after each failure.
[ "${SERVICE_RESULT:-success}" = success ] || exit 0
umask 077
file=$1
# The timer and slurmdbd's end may come at the same time.
exec 9>"$file.lock"
flock 9
clusters=$(mysql --batch --skip-column-names --execute='SELECT COUNT(*) FROM cluster_table' slurm_acct_db)
if [ "$clusters" = 0 ]; then
    echo "gangway: accounting not saved: the database has no cluster yet" >&2
    exit 0
fi
mysqldump --single-transaction slurm_acct_db | gzip >"$file.new"
sync "$file.new"
mv "$file.new" "$file"
sync "$(dirname "$file")"
