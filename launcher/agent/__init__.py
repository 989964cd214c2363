"""The agent of one replica: it finds or becomes the coordinator, and runs its workers.

program                 ``python -m launcher.agent``: an agent from ``intent.json`` to its end
membership              the agent's part in the worlds of its job
search                  the search for the coordinator
leading                 the agent's time as coordinator
coordinator_connection  the connection to the coordinator; notices a silent coordinator
departure               lets the agent end before its job ends
worker_group            carries out the coordinator's orders
network_check           the agent's side of ``--network-check``
terms                   the rules and time limits that the owner set, from a launch configuration
addresses               the addresses at which other machines reach this machine
listener                the addresses at which the agent answers
"""
