#!/bin/sh
# Builds the CPU library with the address and undefined-behaviour sanitizers in a copy of the project, and runs tests
# there under them. Run from the project's root. usage: sanitize.sh FOLDER PYTHON TESTS_OR_OPTIONS...
set -eu
folder=$1
python=$(pwd)/$2
shift 2

mkdir -p "$folder"
rm -rf "$folder/seegera_fast" "$folder/kernels" "$folder/tests"
# Files are copied with their times, so that a second run compiles only what changed.
cp -Rp seegera_fast kernels tests setup.py pyproject.toml CMakeLists.txt README.md LICENSE "$folder"
rm -f "$folder"/seegera_fast/_C*.so
cd "$folder"
SEEGERA_SANITIZE=address,undefined SEEGERA_CUDA=0 "$python" setup.py --quiet build_ext --inplace

# The sanitizers must be loaded before anything else, since Python is not built with them. Leaks are not searched for,
# because Python does not free all its memory at exit.
compiler=${CXX:-c++}
LD_PRELOAD="$($compiler -print-file-name=libasan.so):$($compiler -print-file-name=libubsan.so)"
ASAN_OPTIONS=detect_leaks=0
UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export LD_PRELOAD ASAN_OPTIONS UBSAN_OPTIONS
# A sanitizer writes its report to stderr and ends the process, so pytest must not capture stderr.
exec "$python" -m pytest --capture=sys "$@"
