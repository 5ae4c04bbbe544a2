#!/usr/bin/env bash
# Runs integration/containers: Redis in containers, through testcontainers.
#
#   scripts/containers.sh [go test flags]
#
# It takes the Docker engine that answers. Where there is none, in CI (CI=true) and
# with the rights for it, it installs docker.io and starts an engine of its own, which
# ends with it. The image is that of HOLDFAST_TEST_IMAGE, or is made of the local
# redis-server: nothing is pulled. What can't be run is said in capitals, and is no
# failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

not_run() {
  echo "NOT RUN: CONTAINERS: ${1^^}"
  exit 0
}

dir=
stop() {
  if [ -n "$dir" ]; then
    if [ -f "$dir/pid" ]; then
      kill "$(cat "$dir/pid")" 2>/dev/null || true
      for _ in $(seq 50); do
        [ -f "$dir/pid" ] || break
        sleep 0.2
      done
    fi
    rm -rf "$dir" 2>/dev/null || true
  fi
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

engine() { command -v docker >/dev/null && docker info >/dev/null 2>&1; }

# start brings an engine with a socket and folders of its own.
start() {
  local packages=()
  command -v dockerd >/dev/null || packages+=(docker.io iptables iproute2)
  command -v busybox >/dev/null || packages+=(busybox-static)
  if [ ${#packages[@]} -gt 0 ]; then
    command -v apt-get >/dev/null || not_run "no engine, and no apt-get"
    apt-get update -qq || not_run "no engine, and none can be installed"
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${packages[@]}" >/dev/null ||
      not_run "no engine, and none can be installed"
  fi
  dir=$(mktemp -d)
  dockerd --host "unix://$dir/docker.sock" --data-root "$dir/data" --exec-root "$dir/exec" --pidfile "$dir/pid" \
    >"$dir/log" 2>&1 &
  export DOCKER_HOST="unix://$dir/docker.sock"
  for _ in $(seq 100); do
    if engine; then
      return
    fi
    sleep 0.3
  done
  tail -n 5 "$dir/log"
  not_run "the engine doesn't start"
}

if ! engine; then
  [ "${CI:-}" = true ] || not_run "no engine answers"
  [ "$(id -u)" = 0 ] || not_run "no engine answers, and root alone may start one"
  start
fi
if [ -z "${HOLDFAST_TEST_IMAGE:-}" ]; then
  command -v busybox >/dev/null || not_run "an image needs busybox (static)"
  HOLDFAST_TEST_IMAGE=$(scripts/image.sh) || not_run "no image can be made"
fi
export HOLDFAST_TEST_IMAGE GOWORK="$PWD/go.work"
go test -race -count=1 -timeout 5m "$@" ./integration/containers
