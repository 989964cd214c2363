"""``train.py`` with an argument: the number of steps between two saves."""

import sys

import train

if __name__ == "__main__":
    train.SAVE_EVERY = int(sys.argv[1])
    train.main()
