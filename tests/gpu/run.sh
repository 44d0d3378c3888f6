#!/usr/bin/env bash
# SPDX-License-Identifier: AGPL-3.0-only
# Everything that needs GPUs, from built programs: nothing is built, and nothing but NCCL, the driver
# and, for some, compute-sanitizer must be installed. A line a check, then the failures' own words.
#
#     tests/gpu/run.sh [--long] [BUILD]
#
# BUILD holds tests/conformance and tests/gpu; default build/release. --long: also the tests that take
# minutes, about nine in all.
#
# Exits with 0 when all is well, 1 when a check failed, 77 where there is no GPU.
set -u
long=
if [ "${1:-}" = --long ]; then
    long=yes
    shift
fi
build=${1:-build/release}
conformance=$build/tests/conformance/conformance
logs=$(mktemp -d)
failed=0
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
if [ "$gpus" -eq 0 ]; then
    echo "skipped: no GPU"
    exit 77
fi
nvidia-smi -L | sed 's/ (UUID.*//'

check() { # check NAME LIMIT_S COMMAND...
    local name=$1 limit=$2 log=$logs/${1// /_} begun=$SECONDS status
    shift 2
    timeout -k 10 "$limit" "$@" >"$log" 2>&1
    status=$?
    case $status in
    0) echo "pass  $name ($((SECONDS - begun)) s): $(tail -n 1 "$log")" ;;
    77) echo "skip  $name: $(tail -n 1 "$log")" ;;
    *)
        echo "FAIL  $name ($((SECONDS - begun)) s): status $status"
        failed=$((failed + 1))
        { grep -E '^FAIL|ERROR SUMMARY|RACECHECK SUMMARY|^rank ' "$log" || tail -n 20 "$log"; } |
            head -n 40 | sed 's/^/      /'
        ;;
    esac
}

sums=all_reduce,sum_of,captured_ops,fence,async,started_op,kernels_are_over
check "conformance, two ranks" 150 "$conformance" --world cuda
check "conformance, one rank" 50 "$conformance" --world cuda --ranks 1
check "conformance, pair lane" 45 env SPARK_COMM_LANE=pair "$conformance" --world cuda --only $sums
check "conformance, all_reduce lane" 45 env SPARK_COMM_LANE=all_reduce "$conformance" \
    --world cuda --only $sums
[ "$gpus" -ge 4 ] && check "conformance, four ranks" 150 "$conformance" --world cuda --ranks 4
[ -n "$long" ] && check "conformance, minutes without an alarm" 600 "$conformance" --world cuda \
    --long --only disturb_nobody
check "all pairs of BF16 values" 60 "$build/tests/gpu/bf16_all_pairs_gpu"

sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
for tool in memcheck racecheck; do
    if [ ! -x "$sanitizer" ]; then
        echo "skip  $tool: no compute-sanitizer"
        continue
    fi
    watched=("$sanitizer" --tool "$tool" --target-processes all --error-exitcode 9)
    # NCCL asks the driver for what this machine may lack: such answers are no errors.
    [ "$tool" = memcheck ] && watched+=(--report-api-errors no)
    check "$tool of the kernels" 45 "${watched[@]}" "$conformance" --world cuda --ranks 1 \
        --scale 10 --only seam_add
    check "$tool of sums of two ranks" 45 env SPARK_COMM_LANE=pair "${watched[@]}" "$conformance" \
        --world cuda --scale 10 --only all_reduce_of_few
done

echo "$SECONDS s, $failed failed"
rm -rf "$logs"
[ "$failed" -eq 0 ]
