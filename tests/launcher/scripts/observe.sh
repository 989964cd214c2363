#!/bin/sh
exec "$PYTHON" "$(dirname "$0")/observe.py" "$@"
