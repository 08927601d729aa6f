#!/usr/bin/env bash
set -euo pipefail
[ "${SERVICE_RESULT:-success}" = success ] || exit 0
umask 077
file=$1
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
