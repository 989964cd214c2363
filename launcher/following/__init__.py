"""An agent finds who coordinates its job, or becomes it, and takes part in its worlds.

participant   the agent's part in the worlds of its job
ended         how an agent ends
search        who coordinates
leading       the agent's time as coordinator
seats         where coordinators are found, and who may be one
addresses     of this machine, as others reach it
"""
