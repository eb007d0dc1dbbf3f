#!/usr/bin/env bash
# Instructions per check: independent of the load of the machine.
#
#   ./callgrind.sh                          governor and ours, one hot key and 100 thousand ids
#   ./callgrind.sh 200000 governor hot/1    number of checks, one contestant, one cell
#
# Each row runs twice, with n and with 2n checks: the difference is the cost of n checks without the setup.
# Only instructions inside `measure::timed` are counted. Instructions are not time: a cache miss and a locked
# instruction count as one.
set -euo pipefail
cd "$(dirname "$0")"

die() { printf 'callgrind.sh: %s\n' "$*" >&2; exit 2; }

command -v valgrind >/dev/null || die "valgrind is missing: apt-get install valgrind"
[ $# -eq 0 ] || [ $# -eq 1 ] || [ $# -eq 3 ] || die "usage: ./callgrind.sh [CHECKS [CONTESTANT CELL]]"

checks=${1:-100000}
bench=${CARGO_TARGET_DIR:-target}/release/sluicegate-bench
cargo build --release --quiet

# instructions CONTESTANT CELL CHECKS
instructions() {
    local output
    output=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null \
        --toggle-collect='*library*measure*timed*' "$bench" one-cell "$@" 2>&1 >/dev/null) ||
        die "one-cell $*: $output"
    sed -n 's/.*Collected : \([0-9]*\).*/\1/p' <<<"$output"
}

# report CONTESTANT CELL
report() {
    local once twice
    once=$(instructions "$1" "$2" "$checks")
    twice=$(instructions "$1" "$2" $((2 * checks)))
    [ "${twice:-0}" -gt "${once:-0}" ] || die "$1 $2: nothing was counted inside measure::timed"
    printf '| %-6s | %-16s | %22s |\n' "$2" "$1" $(((twice - once + checks / 2) / checks))
}

printf '| cell   | contestant       | instructions per check |\n'
printf '| ------ | ---------------- | ---------------------: |\n'
if [ $# -eq 3 ]; then
    report "$2" "$3"
    exit
fi
for cell in hot/1 100k/1; do
    for contestant in read-id-only governor ours ours-bare ours-given-now ours-batch-16; do
        report "$contestant" "$cell"
    done
done
