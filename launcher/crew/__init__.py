"""The workers of one agent, and what its coordinator's orders make of them.

orders       orders are carried out, one after the other
staying      changes of the world that end no process
telling      what the coordinator is told of workers
room         whether a second set of them fits into memory
standstill   those that were stopped
"""
