#!/bin/sh
# Sees to the programs named in system-packages.txt (or in the file given). Missing ones are installed as root where
# there is apt; otherwise it stops with the exact line to type. Looks for the programs, not for packages: who has
# tmux from elsewhere has tmux. A line of the list is a Debian package and the signs of it, of which one is enough:
# a program on the PATH, or the file of a font.
list=${1:-${0%/*}/system-packages.txt}

has_sign() {
  case $1 in
    *.ttf)
      for folder in /usr/share/fonts /usr/local/share/fonts /Library/Fonts "$HOME/.fonts" "$HOME/.local/share/fonts" "$HOME/Library/Fonts"; do
        [ -d "$folder" ] && [ -n "$(find "$folder" -name "$1" 2>/dev/null)" ] && return 0
      done
      return 1
      ;;
    # Daemons are where only root's PATH leads.
    *) command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ] ;;
  esac
}

missing=""
while read -r package signs; do
  case $package in "" | \#*) continue ;; esac
  [ "$package" != bubblewrap ] || [ "$(uname)" = Linux ] || continue
  found=""
  for sign in $signs; do
    if has_sign "$sign"; then
      found=$sign
      break
    fi
  done
  [ -n "$found" ] || missing="$missing $package"
done <"$list"

[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1; then
  echo "missing for the tests:$missing (as Debian calls them); install them with your package manager" >&2
  exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "missing system packages; type: sudo apt-get install --no-install-recommends$missing" >&2
  exit 1
fi
echo "Installing system packages:$missing"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # one word for each package
apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing
