#!/usr/bin/env bash
# Every check that runs no test. Goes on after a failure, so that one run tells
# all of them; fails if one failed. The tools are built from tools.mod into
# .cache/tools, which takes some minutes the first time.
#
#   GOVULNDB   another database of vulnerabilities (https://vuln.go.dev)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

root=$PWD
tools=$root/.cache/tools
export GOWORK="$root/go.work"
failed=()

verdict() {
  local rc=$?
  if [ "$rc" = 0 ]; then
    echo "PASS: lint, in $SECONDS s"
  else
    echo "FAIL: lint: ${failed[*]:-could not run to its end} (after $SECONDS s)"
  fi
}
trap verdict EXIT
trap 'exit 130' INT
trap 'exit 143' TERM # else a script that was stopped would seem to have passed

# check runs one check under its name.
check() {
  local name=$1
  shift
  echo "--- $name"
  if ! "$@"; then
    failed+=("[$name]")
  fi
}

formatted() {
  local list
  list=$("$tools/gofumpt" -l .) || return 1
  if [ -n "$list" ]; then
    printf 'not formatted (make fmt):\n%s\n' "$list"
    return 1
  fi
}

golangci() {
  (cd "$1" && "$tools/golangci-lint" run --config "$root/.golangci.yml" \
    --allow-parallel-runners ./...)
}

# script_ok holds a Lua file to the rules of CONTRIBUTING.md.
script_ok() {
  awk -v file="$1" '
    function bad(line, what) { print file ":" line ": " what; wrong = 1 }
    NR == 1 { header = 1 }
    !/^--/  { header = 0 }
    header && /^-- KEYS[[ ]/  { has["KEYS"] = 1 }
    header && /^-- ARGV[[ ]/  { has["ARGV"] = 1 }
    header && /^-- Returns /  { has["Returns"] = 1 }
    header && /^-- Repeat /   { has["Repeat"] = 1 }
    { sub(/--.*/, ""); code = code $0 "\n" }
    END {
      n = split("KEYS ARGV Returns Repeat", want, " ")
      for (i = 1; i <= n; i++)
        if (!has[want[i]])
          bad(1, "the header has no line \"-- " want[i] " ...\"")
      line = 1
      while (match(code, /redis[ \t\n]*(\.[ \t\n]*p?call|\[)/)) {
        seen = substr(code, 1, RSTART + RLENGTH - 1)
        line += gsub(/\n/, "", seen)
        found = substr(code, RSTART, RLENGTH)
        code = substr(code, RSTART + RLENGTH)
        if (found ~ /\[$/ || code !~ /^[ \t\n]*\([ \t\n]*["\047][A-Za-z]+["\047][ \t\n]*[,)]/)
          bad(line, "redis.call and redis.pcall take the command as a plain string")
      }
      exit wrong
    }' "$1"
}

scripts_ok() {
  local file ok=1
  while IFS= read -r file; do
    script_ok "$file" || ok=0
  done < <(find . -name .git -prune -o -name .cache -prune -o -name '*.lua' -print)
  [ "$ok" = 1 ]
}

# known_faults looks for known vulnerabilities in what one module calls. Their
# database is on the net: without it, the check says so instead of failing.
known_faults() {
  local out rc=0
  out=$(cd "$1" && "$tools/govulncheck" -db "${GOVULNDB:-https://vuln.go.dev}" ./... 2>&1) || rc=$?
  if [ "$rc" != 0 ] && grep -q 'fetching vulnerabilities' <<<"$out"; then
    echo "$out"
    echo "NOT RUN: GOVULNCHECK, MODULE $2: ITS DATABASE CANNOT BE REACHED FROM HERE"
    return 0
  fi
  echo "$out"
  return "$rc"
}

modules=$(go list -m -f '{{.Dir}}') # of the workspace

echo "--- tools"
GOWORK=off GOBIN="$tools" go install -buildvcs=false -modfile=tools.mod tool

check "gofumpt" formatted
check "go vet" go vet work
check "go fix" go fix -diff work
check "lua" scripts_ok
check "golangci config" "$tools/golangci-lint" config verify
while IFS= read -r module; do
  name=.${module#"$root"}
  check "golangci-lint $name" golangci "$module"
  check "govulncheck $name" known_faults "$module" "$name"
done <<<"$modules"

[ ${#failed[@]} = 0 ]
