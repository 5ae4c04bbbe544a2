#!/usr/bin/env bash
# Client processes against a nemesis (integration/chaos), one run for each
# topology and seed. Goes on after a run that fails, so that one call tells all of
# them; fails if one failed. What failed runs recorded stays in a folder that is
# named at the end.
#
#   scripts/chaos.sh [flags of integration/chaos]   e.g. scripts/chaos.sh -v
#
#   TOPOLOGIES   single sentinel cluster
#   SEEDS        1
#   DURATION     of the work of each run (30s)
#   CLIENTS      processes (8)
#   GOROUTINES   of each process (16)
#   OUT          folder for what failed runs recorded (a new temporary one)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export GOWORK="$PWD/go.work"

OUT=${OUT:-$(mktemp -d)}
mkdir -p "$OUT"
program=$(mktemp -d)/chaos
failed=()
verdicts=()
current=

verdict() {
  local rc=$?
  rm -rf "$(dirname "$program")"
  printf '%s\n' ${verdicts[@]+"${verdicts[@]}"}
  if [ "$rc" = 0 ]; then
    rmdir "$OUT" 2>/dev/null || true # unless somebody keeps something there
    echo "PASS: chaos, ${#verdicts[@]} runs, in $SECONDS s"
  else
    echo "FAIL: chaos: ${failed[*]:-stopped before its end}, after $SECONDS s; what was recorded is in $OUT"
  fi
}
# A run that is told to stop takes its servers and clients along.
stopped() {
  if [ -n "$current" ]; then
    kill -TERM "$current" 2>/dev/null || true
    wait "$current" || true
  fi
  exit "$1"
}
trap verdict EXIT
trap 'stopped 130' INT
trap 'stopped 143' TERM

go build -buildvcs=false -o "$program" ./integration/chaos
for topology in ${TOPOLOGIES:-single sentinel cluster}; do
  for seed in ${SEEDS:-1}; do
    name=$topology-$seed
    "$program" -topology "$topology" -seed "$seed" -duration "${DURATION:-30s}" \
      -clients "${CLIENTS:-8}" -goroutines "${GOROUTINES:-16}" -out "$OUT/$name" "$@" \
      >"$OUT/$name.log" 2>&1 &
    current=$!
    rc=0
    wait "$current" || rc=$?
    current=
    cat "$OUT/$name.log"
    verdicts+=("$(tail -n 1 "$OUT/$name.log")")
    if [ "$rc" = 0 ]; then
      rm -f "$OUT/$name.log"
    else
      failed+=("[$name, exit $rc]")
    fi
  done
done

[ ${#failed[@]} = 0 ]
