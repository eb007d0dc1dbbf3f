#!/usr/bin/env bash
# Instructions per check, counted and not timed: the same on a busy machine as on a quiet one.
#
#   ./callgrind.sh                          governor and ours, one hot key and 100 thousand ids
#   ./callgrind.sh 200000 governor hot/1    so many checks, one contestant, one cell
#
# Each is run twice, with n and with 2n checks; the difference is what n checks cost, and everything that is
# done once cancels out. Counted is only what happens inside `one_cell::timed`. Instructions are not time:
# a cache miss and a locked instruction count as one like any other.
set -euo pipefail
cd "$(dirname "$0")"

die() { printf 'callgrind.sh: %s\n' "$*" >&2; exit 2; }

command -v valgrind >/dev/null || die "valgrind is missing: apt-get install valgrind"
[ $# -eq 0 ] || [ $# -eq 1 ] || [ $# -eq 3 ] || die "usage: ./callgrind.sh [CHECKS [CONTESTANT CELL]]"

checks=${1:-100000}
bench=${CARGO_TARGET_DIR:-target}/release/sluicegate-bench
cargo build --release --quiet --features ours

# instructions CONTESTANT CELL CHECKS
instructions() {
    local said
    said=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null \
        --toggle-collect='*one_cell*timed*' "$bench" one-cell "$@" 2>&1 >/dev/null) ||
        die "one-cell $*: $said"
    sed -n 's/.*Collected : \([0-9]*\).*/\1/p' <<<"$said"
}

# report CONTESTANT CELL
report() {
    local once twice
    once=$(instructions "$1" "$2" "$checks")
    twice=$(instructions "$1" "$2" $((2 * checks)))
    [ "${twice:-0}" -gt "${once:-0}" ] || die "$1 $2: nothing was counted inside one_cell::timed"
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
