"""A coordinator's worlds: what it knows of them, and what it does about them.

sight         what it knows, and what it may do: the values of ``launcher.membership``
standing      how things stand
watch         what was observed of one world
exits         how its workers ended, for the diagnosis
preparation   a world that is made ready while another one trains
acts          actions are carried out
in_process    those that end no process
peers         the connections of agents
heartbeats    what agents' heartbeats tell, and the leases that answer them
books         what is written down
ledger        what of that a successor has to know
link          words with Brain
pins          a second hold on a checkpoint
"""
