"""Does training learn as much when its world and its batch change?"""
