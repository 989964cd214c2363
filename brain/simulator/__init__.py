"""A cluster in virtual time: the service's own loop, or a peer's policy, decides; physics answers.

    spec, workload, applications, tables   what there is: nodes, arrivals, how scripts scale
    placing, faults, world                 what happens: accelerators taken, work done, nodes lost
    service, policies                      who decides: Brain on stores in memory, or a peer's rule
    run, measures, report                  the loop, what came of it, and a page that shows it
    replay                                 recorded jobs through another policy or other settings

Nothing here reads a clock, a file or a random number that was not handed in: the same arguments
give the same result to the last digit.
"""
