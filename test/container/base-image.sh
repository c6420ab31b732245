#!/usr/bin/env bash
# The Dockerfile's base image made on the spot, for machines that reach Debian and npm and no image registry: Debian 13 by
# mmdebstrap, Node and npm by npm, committed under the base image's own name. As root; half a minute.
#
# usage: base-image.sh FOLDER      FOLDER keeps the image store, apart from the machine's own, and is used again
#
# Leaves FOLDER/storage.conf for CONTAINERS_STORAGE_CONF and FOLDER/npm, which tells an npm inside how this machine's reaches
# its registry: a volume for /run/npm, and its npmrc one for /root/.npmrc.
set -euo pipefail

NAME=docker.io/library/node:24-trixie-slim
NODE_VERSION=24.21.0
NPM_VERSION=11.19.1
MIRROR=http://deb.debian.org/debian

mkdir -p "$1"
folder=$(realpath "$1")

# Overlays do not stack on an overlay, which is what a container's own files are on.
driver=overlay
[ "$(stat -f -c %T "$folder")" != overlayfs ] || driver=vfs
printf '[storage]\ndriver = "%s"\ngraphroot = "%s/storage"\nrunroot = "%s/run"\n' \
  "$driver" "$folder" "$folder" > "$folder/storage.conf"
export CONTAINERS_STORAGE_CONF=$folder/storage.conf BUILDAH_ISOLATION=chroot

(
  umask 077
  mkdir -p "$folder/npm"
  npm config list --json 2> /dev/null | FOLDER=$folder node -e '
    const { readFileSync, writeFileSync } = require("node:fs");
    const config = JSON.parse(readFileSync(0, "utf8"));
    const lines = ["registry", "proxy", "https-proxy", "noproxy"]
      // Unset ones are null, or a list of one empty text.
      .filter((name) => String(config[name] ?? "") !== "")
      .map((name) => `${name}=${config[name]}\n`);
    // Not by value: npm hands its settings to git as environment, which they would be too long for.
    if (config.cafile) lines.push("cafile=/run/npm/certificates.pem\n");
    writeFileSync(`${process.env.FOLDER}/npm/certificates.pem`, config.cafile ? readFileSync(config.cafile) : "");
    writeFileSync(`${process.env.FOLDER}/npm/npmrc`, lines.join(""));
  '
)

if buildah images --quiet "$NAME" > /dev/null 2>&1; then
  echo "base image: kept"
  exit 0
fi

work=$(mktemp -d "$folder/base.XXXXXX")
trap 'rm -rf "$work"' EXIT
arch=$(node -p process.arch)

mmdebstrap --variant=minbase trixie "$work/root" "$MIRROR" > "$work/debian.log" 2>&1 ||
  { tail -n 20 "$work/debian.log"; exit 1; }
# As in Debian's slim images: no manuals, no translations, no package lists.
find "$work/root/usr/share/doc" -type f ! -name copyright -delete
rm -rf "$work/root"/usr/share/{man,info,locale,groff,lintian} "$work/root"/var/{cache/apt,lib/apt/lists,log,cache/debconf}/*

cd "$work"
npm pack --silent "node-linux-$arch@$NODE_VERSION" "npm@$NPM_VERSION" > packed.txt
mkdir node npm
tar -xzf "node-linux-$arch-$NODE_VERSION.tgz" -C node --strip-components=1
tar -xzf "npm-$NPM_VERSION.tgz" -C npm --strip-components=1
install -D -m 0755 node/bin/node root/usr/local/bin/node
install -d root/usr/local/lib/node_modules
mv npm root/usr/local/lib/node_modules/npm
ln -s ../lib/node_modules/npm/bin/npm-cli.js root/usr/local/bin/npm
ln -s ../lib/node_modules/npm/bin/npx-cli.js root/usr/local/bin/npx
chmod 0755 root/usr/local/lib/node_modules/npm/bin/{npm,npx}-cli.js

container=$(buildah from scratch)
buildah add --quiet "$container" root / > /dev/null
buildah config --env "NODE_VERSION=$NODE_VERSION" --cmd node "$container"
buildah commit --quiet --rm "$container" "$NAME" > /dev/null
echo "base image: made, Node $NODE_VERSION on Debian $(cat root/etc/debian_version)"
