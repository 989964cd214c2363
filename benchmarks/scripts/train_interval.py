"""``train.py`` that saves every so many steps: the number is its argument."""

import sys

import train

if __name__ == "__main__":
    train.SAVE_EVERY = int(sys.argv[1])
    train.main()
