"""``python -m brain.cli`` runs ``brain``."""

from brain.cli import main

main()
