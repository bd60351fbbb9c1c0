#!/usr/bin/env bash
# Installs the Debian packages named in system-packages.txt (or in the file given) that are missing.
# As root it installs them; otherwise it stops with the exact line to type.
set -euo pipefail
list=${1:-$(dirname "$0")/system-packages.txt}
missing=()
while read -r package; do
  [[ -z $package || $package == \#* ]] && continue
  dpkg-query --show --showformat='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done <"$list"
[[ ${#missing[@]} -eq 0 ]] && exit 0
if [[ $(id -u) -ne 0 ]]; then
  echo "missing system packages; type: sudo apt-get install --no-install-recommends ${missing[*]}" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}"
