"""The agent of one replica: it finds or becomes the coordinator, and runs its workers.

program         ``python -m launcher.agent``: runs an agent from its intent to its end
membership      the agent's part in the worlds of its job
search          the search for the coordinator
leading         the agent's time as coordinator
worker_group    carries out the coordinator's orders
network_check   the agent's side of ``--network-check``
terms           the owner's terms, from a launch configuration
addresses       this machine's addresses, as others reach it
listener        the addresses at which it answers
"""
