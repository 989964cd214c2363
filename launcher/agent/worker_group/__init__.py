"""Starts, stops and prepares the workers of this agent, as its coordinator orders.

group        carries out orders, one after the other
prepared     workers that wait for the next world
in_process   changes of the world that end no process
reports      reports on workers, for the coordinator
capacity     memory for a second set of workers
standstill   workers that were stopped by SIGSTOP
"""
