"""Worlds that stand still although nobody ended, and nodes that hold the others up.

rules      heartbeats -> how long the world has been quiet, and whether that is too long. Pure
moving     two looks at quiet workers -> whether they stand still or only say nothing. Pure
dumps      an agent's two looks: stacks, processor time, bytes; flight recorder's files
terms      what the owner wants done about it
slow       step times from heartbeats -> a replica that is better left
watching   the coordinator's side: looks now and then, asks agents, tells what was found
"""
