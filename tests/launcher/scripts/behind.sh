#!/bin/sh
# A shell that waits for its script and does not become it.
"$PYTHON" "$(dirname "$0")/behave.py" "$@"
echo "the shell goes on"
