#!/usr/bin/env bash
# Installs Debian's chromium for the tests that drive the report in a browser. Does nothing where it is there already;
# where it cannot be installed it says why and still succeeds: those tests then skip.
set -euo pipefail

if command -v chromium >/dev/null 2>&1; then
  exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
  echo "install-chromium: there is no apt-get here; install chromium by other means, or the browser tests skip" >&2
  exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "install-chromium: apt-get needs root; run 'sudo tools/install-chromium.sh', or the browser tests skip" >&2
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >/dev/null; then
  echo "install-chromium: apt-get could not install chromium (see above); the browser tests skip" >&2
fi
