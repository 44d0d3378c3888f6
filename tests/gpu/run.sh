#!/usr/bin/env bash
# SPDX-License-Identifier: AGPL-3.0-only
# Everything that needs GPUs, from built programs: nothing is built, and nothing but NCCL, the driver,
# python3 and, for some, compute-sanitizer must be installed. A line a check, then the failures' own
# words.
#
#     tests/gpu/run.sh [--long] [--only TEXT] [--nccl PATH] [BUILD]
#
# BUILD holds spark-comm, tests/conformance and tests/gpu; default build/release. --long: also the
# tests that take minutes, about nine in all. --only: the checks whose name holds TEXT. --nccl: this
# file in the place of libnccl.so.2.
#
# Ranks get a GPU each where there are so many. Else all are on GPU 0, NCCL keeps to sockets, and the
# check's name says so.
#
# Exits with 0 when all is well, 1 when a check failed, 2 for a wrong command line, 77 where there is
# no GPU.
set -u

usage() {
    echo "usage: tests/gpu/run.sh [--long] [--only TEXT] [--nccl PATH] [BUILD]" >&2
    exit 2
}

long='' only='' build=build/release
while [ $# -gt 0 ]; do
    case $1 in
    --long) long=yes ;;
    --only) only=${2-} && shift ;;
    --nccl) export SPARK_COMM_NCCL_LIBRARY=${2-} && shift ;;
    -*) usage ;;
    *) build=$1 ;;
    esac
    shift || usage
done
conformance=$build/tests/conformance/conformance
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
if [ "$gpus" -eq 0 ]; then
    echo "skipped: no GPU"
    exit 77
fi
nvidia-smi -L | sed 's/ (UUID.*//'
logs=$(mktemp -d)
ran=0
failed=0

# What of a failed check's output is shown; the end of it where there is no such line.
words='^FAIL|^rank |^spark-comm: |SUMMARY|WRONG|^(descriptors|threads|resident KiB|GPU KiB) '

check() { # check NAME LIMIT_S COMMAND...
    local name=$1 limit=$2 log=$logs/${1// /_} begun=$SECONDS status
    [[ $name == *"$only"* ]] || return 0
    shift 2
    ran=$((ran + 1))
    timeout -k 10 "$limit" "$@" >"$log" 2>&1
    status=$?
    case $status in
    0) echo "pass  $name ($((SECONDS - begun)) s): $(tail -n 1 "$log")" ;;
    77) echo "skip  $name: $(tail -n 1 "$log")" ;;
    *)
        echo "FAIL  $name ($((SECONDS - begun)) s): status $status"
        failed=$((failed + 1))
        { grep -E "$words" "$log" || tail -n 20 "$log"; } | head -n 40 | sed 's/^/      /'
        ;;
    esac
}

place() { # place RANKS: sets where, for the name, on, for the command, and how many times as slow
    where='' on=() times=1
    [ "$gpus" -ge "$1" ] || where=', on one GPU' on=(--device 0) times=2
}

conform() { # conform NAME RANKS LIMIT_S [OPTION...]
    place "$2"
    check "conformance, $1$where" $(($3 * times)) "$conformance" --world cuda --ranks "$2" \
        --scale "$times" "${on[@]}" "${@:4}"
}

sums=all_reduce,sum_of,captured_ops,fence,async,started_op,kernels_are_over
conform "two ranks" 2 150
conform "one rank" 1 50
conform "four ranks" 4 150
SPARK_COMM_LANE=pair conform "pair lane" 2 45 --only $sums
SPARK_COMM_LANE=all_reduce conform "all_reduce lane" 2 45 --only $sums
[ -n "$long" ] && conform "minutes without an alarm" 2 600 --long --only disturb_nobody
check "all pairs of BF16 values" 60 "$build/tests/gpu/bf16_all_pairs_gpu"

place 2
cycles=5
run_cycles=(python3 "$(dirname "$0")/run_cycles.py" --program "$build/spark-comm" --cycles "$cycles")
for how in kill stop return; do
    check "cycles of run, $how$where" 180 "${run_cycles[@]}" --how "$how" "${on[@]}"
done
[ -z "$where" ] && check "cycles of run, kill, on sockets" 180 "${run_cycles[@]}" --sockets
for how in kill stop reset async; do
    check "bench recover, $how$where" 180 "$build/spark-comm" bench recover --how "$how" \
        --cycles "$cycles" "${on[@]}"
done

sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
for tool in memcheck racecheck; do
    watched=("$sanitizer" --tool "$tool" --target-processes all --error-exitcode 9)
    # NCCL asks the driver for what this machine may lack: such answers are no errors.
    [ "$tool" = memcheck ] && watched+=(--report-api-errors no)
    [ -x "$sanitizer" ] || watched=(sh -c 'echo no compute-sanitizer; exit 77')
    check "$tool of the kernels" 45 "${watched[@]}" "$conformance" --world cuda --ranks 1 \
        --scale 10 --only seam_add
    SPARK_COMM_LANE=pair check "$tool of sums of two ranks$where" $((45 * times)) "${watched[@]}" \
        "$conformance" --world cuda --scale 10 "${on[@]}" --only all_reduce_of_few
done

rm -rf "$logs"
if [ "$ran" -eq 0 ]; then
    echo "no check's name holds \"$only\"" >&2
    exit 2
fi
echo "$SECONDS s, $ran checks, $failed failed"
[ "$failed" -eq 0 ]
