"""``python -m brain.cli`` is ``brain``."""

from brain.cli import main

main()
