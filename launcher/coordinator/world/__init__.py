"""The present world of a coordinator: its state, and the actions on it.

state         what the coordinator was told, sees and wrote down
terms         terms that the owner set
monitor       observations of one world
exits         the ends of its workers, for the diagnosis
preparation   a world that is made ready while another one trains
actions       actions of ``membership`` are carried out
in_process    those that end no process
peers         the connections of agents
heartbeats    agents' heartbeats, and the leases that answer them
journal       files for a successor, and for Brain
ledger        what a successor has to know
witness       the witness is offered, and put in force
"""
