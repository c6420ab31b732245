#!/usr/bin/env bash
# Installs the other gateways that the bench compares with into this folder; `npm run bench:peers` calls it. Each wants
# the tool of its language, and is left out if that is not there.
set -euo pipefail
cd "$(dirname "$0")"
npm install --ignore-scripts --no-audit --no-fund --no-package-lock
if command -v python3 > /dev/null; then
  python3 -m venv python
  python/bin/pip install --quiet -r requirements.txt
else
  echo 'LiteLLM is left out: no python3'
fi
if command -v cargo > /dev/null; then
  # A quarter of an hour on two cores.
  cargo install litellm-rs --version 0.9.0 --locked --root rust --no-default-features --features sqlite,metrics
else
  echo 'litellm-rs is left out: no cargo'
fi
