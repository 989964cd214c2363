"""What follows from the kinds: schema, rights, reference. It writes files and talks to nobody."""
