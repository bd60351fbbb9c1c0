#!/bin/sh
# Prints a Python that Moot runs on: 3.11 or later, and able to make environments.
# With an argument it is that one or none; otherwise the first that fits of those on the PATH.
# Plain sh: it must run before anything of ours does, also where /bin/sh is dash or macOS' old bash.
[ $# -gt 0 ] || set -- python3 python3.14 python3.13 python3.12 python3.11 python

complaint=""
for candidate in "$@"; do
  version=$("$candidate" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null) || continue
  if ! "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    : "${complaint:=$candidate is Python $version, and Moot needs 3.11 or later: install a newer one, or name it, as in make run PYTHON=/opt/python3.13/bin/python3}"
  elif ! "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
    : "${complaint:=$candidate ($version) cannot make environments (no venv): on Debian or Ubuntu, sudo apt-get install python${version%.*}-venv}"
  else
    command -v "$candidate"
    exit 0
  fi
done
echo "${complaint:-there is no Python here ($* tried), and Moot needs 3.11 or later: install it, or name it, as in make run PYTHON=/opt/python3.13/bin/python3}" >&2
exit 1
