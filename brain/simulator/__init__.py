"""A simulated cluster in virtual time, under Brain's own loop or under another system's policy.

    spec, workload, applications, tables   the input: nodes, arrivals, scaling of scripts
    placing, faults, world                 the events: accelerators taken, work done, nodes lost
    service, policies                      the decider: Brain on stores in memory, or a peer's rule
    run, measures, report                  the loop, its results, and a page that shows them
    replay                                 recorded jobs through another policy or other settings

Modules read no clock, file or random number except their arguments: the same arguments
give the same result to the last digit.
"""
