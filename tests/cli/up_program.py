"""``brain up`` over other programs: ``up_program.py <home> <service kind> <scaler kind>``."""

import asyncio
import os
import sys
from pathlib import Path

from brain.cli.up import House, owned, run
from brain.errors import BrainError

HOME = Path(sys.argv[1])
CHILD = (sys.executable, str(Path(__file__).parent / "child_program.py"))


def say(text: str) -> None:
    print(text, flush=True)


house = House(
    home=HOME,
    settings={"port": 0},
    slots=2,
    programs={"service": (*CHILD, sys.argv[2]), "scaler": (*CHILD, sys.argv[3])},
    environment=os.environ,
    person="ada",
)
try:
    with owned(HOME):
        asyncio.run(run(house, say))
except BrainError as error:
    sys.exit(f"brain: {error}")
