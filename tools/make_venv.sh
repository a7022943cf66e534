#!/bin/sh
# Makes the virtual environment FOLDER. It takes a Python with a usable torch if there is one, so that an installed
# torch is used, else the newest of the Pythons that are tested. usage: make_venv.sh FOLDER [PYTHON]
set -eu
folder=$1
tools=$(dirname "$0")
chosen=
try() {
    state=$("$1" "$tools/make_venv.py" --probe 2>/dev/null) || return 0
    if [ "$state" = torch ] || [ -z "$chosen" ]; then chosen=$1; fi
    [ "$state" != torch ]
}
if [ -n "${2:-}" ]; then
    try "$2" || :
else
    for python in python3.13 python3.12 python3.11 python3.10 python3; do try "$python" || break; done
fi
if [ -z "$chosen" ]; then
    echo "No Python 3.10 or later with its venv module was found${2:+ at $2}." >&2
    echo "Install one (on Debian and Ubuntu: apt-get install python3 python3-venv), or name it: make PYTHON=/path/to/python3 ..." >&2
    exit 1
fi
exec "$chosen" "$tools/make_venv.py" "$folder"
