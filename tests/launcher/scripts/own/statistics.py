found = "own"
