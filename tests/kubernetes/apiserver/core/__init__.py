"""The API itself, in memory: kinds, objects, verbs, rights. One thread at a time."""
