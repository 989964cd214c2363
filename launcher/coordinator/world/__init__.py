"""The present world of a coordinator: its state, and the actions on it.

state            the coordinator's knowledge: messages, observations, files
terms            terms that the owner set
monitor          observations of one world
preparation      a world that is made ready while another one trains
actions          carries out the actions of ``membership``
in_process       carries out actions that end no process
peers            the connections of agents
member_messages  agents' messages about the present and the prepared world
heartbeats       agents' heartbeats, and the leases that answer them
journal          files for a successor, and for Brain
ledger           facts that a successor has to know
witness          offers the witness, and puts it in force
"""
