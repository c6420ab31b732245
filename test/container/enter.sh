#!/usr/bin/env bash
# Process 1 of a container: run by image-container.ts in new mount and process namespaces. Makes the image's files read-only
# but for the data volume, leaves every capability behind and becomes the image's entry.
#
# usage: enter.sh ROOT CONFIG_FOLDER DATA_FOLDER UID:GID WORKING_FOLDER [NAME=VALUE …] -- COMMAND …
set -euo pipefail
root=$1 config=$2 data=$3 user=$4 folder=$5
shift 5
environment=()
while [ "$1" != -- ]; do environment+=("$1"); shift; done
shift

mount --make-rprivate /
mount --bind "$root" "$root"
mount --bind -o ro "$config" "$root/etc/tollgate"
mount -o remount,bind,ro "$root/etc/tollgate"
mount --bind "$data" "$root/var/lib/tollgate"
mount --bind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -o remount,bind,ro "$root"
exec setpriv --no-new-privs --bounding-set=-all,+setuid,+setgid,+sys_chroot \
  chroot --userspec="$user" --groups= "$root" /usr/bin/env -i -C "$folder" "${environment[@]}" "$@"
