#!/usr/bin/env bash
# Makes a container image of the redis-server on this machine, for
# integration/containers where no registry can be reached. Nothing is pulled.
#
#   scripts/image.sh [tag]   (holdfast-test/redis:local)
#
# Needs docker, and redis-server and busybox (static) in PATH.
set -euo pipefail
tag=${1:-holdfast-test/redis:local}
server=$(command -v "${HOLDFAST_REDIS_SERVER:-redis-server}")
busybox=$(command -v busybox)

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{bin,data,tmp,usr/local/bin}
chmod 1777 "$root/tmp"
cp -L "$busybox" "$root/bin/busybox"
for tool in sh cat kill sleep; do
  ln -s busybox "$root/bin/$tool"
done
cp -L "$server" "$root/usr/local/bin/redis-server"
# What the server is linked with, at the same places.
ldd "$server" | grep -o '/[^ ]*\.so[^ ]*' | sort -u | while read -r lib; do
  install -D "$lib" "$root$lib"
done
tar -C "$root" -c . | docker import \
  -c 'ENV PATH=/usr/local/bin:/bin' -c 'WORKDIR /data' \
  -c 'CMD ["redis-server","--save","","--protected-mode","no"]' - "$tag" >/dev/null
echo "$tag"
