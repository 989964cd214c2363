"""What may be done to one object, as pure functions over plain dicts: no store, no clock."""
