#!/usr/bin/env bash
# Runs the tests with the race detector. Needs bash, Go and git; brings a Redis
# server and a C compiler itself where apt-get is at hand, and for the module
# integration further servers, a JDK and Maven.
#
#   scripts/test.sh [go test flags]   e.g. scripts/test.sh -run TestFair -v
#   scripts/test.sh --setup           only bring what is missing
#
#   PKGS                    packages to test (every module of the workspace but
#                           integration, which is ./integration/...)
#   P                       test binaries at a time (as many as processors:
#                           most tests wait more than they compute)
#   TIMEOUT                 limit for one package (10m)
#   HOLDFAST_REDIS_SERVER   server to use instead of redis-server or
#                           valkey-server from PATH
#   HOLDFAST_WITHOUT_REDISSON=1   don't run beside a real Redisson, which needs a
#                           JDK and Maven
#   HOLDFAST_TEST_SERVERS   further servers, as in PATH, for the tests of versions,
#                           instead of those that scripts/servers.sh brings
set -euo pipefail
case ${HOLDFAST_REDIS_SERVER:-} in
  [!/]*/*) HOLDFAST_REDIS_SERVER=$PWD/$HOLDFAST_REDIS_SERVER ;; # tests run elsewhere
esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."

setup_only=
if [ "${1:-}" = --setup ]; then
  setup_only=1
fi

verdict() {
  local rc=$?
  if [ -n "$setup_only" ] && [ "$rc" = 0 ]; then
    echo "READY: everything that the tests need is here"
  elif [ "$rc" = 0 ]; then
    echo "PASS: tests, in $SECONDS s"
  else
    echo "FAIL: tests (exit $rc), after $SECONDS s"
  fi
}
trap verdict EXIT
trap 'exit 130' INT
trap 'exit 143' TERM # else a script that was stopped would seem to have passed

# server prints the path of the server binary to use.
server() {
  if [ -n "${HOLDFAST_REDIS_SERVER:-}" ]; then
    command -v "$HOLDFAST_REDIS_SERVER"
  else
    command -v redis-server || command -v valkey-server
  fi
}

# compiler tells whether cgo, and so the race detector, can work.
compiler() {
  local cc
  read -ra cc <<<"$(go env CC)"
  printf '#include <stdlib.h>\n#include <pthread.h>\n' |
    "${cc[@]}" -fsyntax-only -x c - >/dev/null 2>&1
}

may_install() {
  command -v apt-get >/dev/null || return 1
  [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  else
    sudo -n "$@"
  fi
}

setup() {
  if ! command -v go >/dev/null; then
    echo "missing: Go. See https://go.dev/doc/install" >&2
    return 1
  fi
  if [ -n "${HOLDFAST_REDIS_SERVER:-}" ] && ! server >/dev/null; then
    echo "missing: HOLDFAST_REDIS_SERVER=$HOLDFAST_REDIS_SERVER is not a program" >&2
    return 1
  fi

  local packages=()
  server >/dev/null || packages+=(redis-server)
  compiler || packages+=(gcc libc6-dev)
  if [ ${#packages[@]} -gt 0 ] && may_install; then
    echo "installing: ${packages[*]}"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive \
      apt-get install -qq -y --no-install-recommends "${packages[@]}"
  fi

  local missing=
  if ! server >/dev/null; then
    missing=1
    cat >&2 <<'HELP'
missing: a Redis server (redis-server or valkey-server, 6.2 or newer).
  Debian, Ubuntu  sudo apt-get install redis-server
  Fedora          sudo dnf install valkey
  macOS           brew install redis
  elsewhere       HOLDFAST_REDIS_SERVER=/path/to/redis-server
HELP
  fi
  if ! compiler; then
    missing=1
    cat >&2 <<'HELP'
missing: a C compiler with the C library's headers (the race detector needs it).
  Debian, Ubuntu  sudo apt-get install gcc libc6-dev
  Fedora          sudo dnf install gcc glibc-devel
  macOS           xcode-select --install
HELP
  fi
  [ -z "$missing" ]
}

setup
export GOWORK="$PWD/go.work" CGO_ENABLED=1
if [ -z "${PKGS:-}" ]; then
  PKGS=$(go list work | grep -v '/holdfast/integration' | tr '\n' ' ')
fi
read -ra pkgs <<<"$PKGS"
integration=
case $PKGS in
  *integration* | work) integration=1 ;;
esac

versions=
if [ -n "$integration" ] && [ -z "${HOLDFAST_TEST_SERVERS:-}" ]; then
  scripts/servers.sh >/dev/null || versions=missing # it says which
fi
if [ -n "$integration" ] && [ "${HOLDFAST_WITHOUT_REDISSON:-}" != 1 ]; then
  # Fetched here, so that a slow registry isn't a test's failure. What is missing
  # it says, and the tests of integration/redisson fail.
  scripts/redisson.sh >/dev/null || echo "NOT READY: SIDE BY SIDE WITH REDISSON"
fi
if [ -n "$setup_only" ]; then
  exit 0
fi

HOLDFAST_REDIS_SERVER=$(server)
export HOLDFAST_REDIS_SERVER
cpus=$(getconf _NPROCESSORS_ONLN)
P=${P:-$cpus}

echo "$(go version), $cpus processors, -p $P"
"$HOLDFAST_REDIS_SERVER" --version

# Nothing here reads the version control stamp, and stamping fails where git
# doesn't trust the folder.
GOFLAGS="$(go env GOFLAGS) -buildvcs=false"
export GOFLAGS

echo "the root module alone: build and vet"
GOWORK=off go build ./...
GOWORK=off go vet ./...

echo "build and test with the race detector"
# Built here, as -p below slows compiling down too. What has tests only is no
# package to build.
read -ra code <<<"$(go list -f '{{if .GoFiles}}{{.ImportPath}}{{end}}' "${pkgs[@]}" | tr '\n' ' ')"
if [ ${#code[@]} -gt 0 ]; then
  go build -race "${code[@]}"
fi
go test -race -count=1 -timeout "${TIMEOUT:-10m}" -p "$P" "${pkgs[@]}" "$@"
if [ "${CI:-}" = true ]; then
  : # which has steps of their own for the rest
elif [ -z "$integration" ]; then
  echo "NOT RUN: MODULE INTEGRATION: make integration, make chaos AND scripts/containers.sh DO"
elif [ -z "${HOLDFAST_TEST_IMAGE:-}" ]; then
  echo "NOT RUN: CONTAINERS: scripts/containers.sh DOES"
fi
[ -z "$versions" ] || [ "${CI:-}" != true ]
