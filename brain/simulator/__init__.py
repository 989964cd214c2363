"""A simulated cluster in virtual time, under Brain's own loop or under another system's policy.

    spec, workload, applications, tables   the input: nodes, arrivals, scaling of scripts
    placing, faults, world                 the events: placements, progress, lost nodes
    service, submitted, policies           the policy: Brain on in-memory stores, or another rule
    run, measures, report                  the loop, its results, and a page that shows them
    replay                                 recorded jobs through another policy or other settings

Modules get the time, files and random numbers only through their arguments, so the same arguments
give the same result to the last digit.
"""
