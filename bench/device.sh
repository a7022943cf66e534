#!/bin/sh
# Tests and benchmarks on this machine's NVIDIA GPU, with nothing to download: sh bench/device.sh --help
# PYTHON names the Python to use; otherwise it is the first of .venv's, python3 and python that has torch.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
for python in "${PYTHON:-}" "$here/../.venv/bin/python" python3 python; do
    if [ -n "$python" ] && "$python" -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("torch"))' \
        2>/dev/null; then
        exec "$python" -u "$here/device.py" "$@"
    fi
done
echo "device.sh: no Python with torch here (PYTHON=${PYTHON:-}, .venv, python3, python)" >&2
exit 4
