#!/bin/sh
# Runs a command and prints how long it took. usage: phase.sh NAME COMMAND [ARGUMENT...]
name=$1
shift
printf '\n== %s\n' "$name"
start=$(date +%s)
"$@"
status=$?
seconds=$(($(date +%s) - start))
if [ "$status" -eq 0 ]; then
    echo "== $name: $seconds s"
else
    echo "== $name: failed with status $status after $seconds s" >&2
fi
exit "$status"
