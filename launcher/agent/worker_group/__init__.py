"""The coordinator's orders, carried out on the workers of this agent.

group        orders, one after the other
in_process   changes of the world that end no process
reports      reports on workers to the coordinator
capacity     memory for a second set of workers
standstill   workers that were stopped by SIGSTOP
"""
