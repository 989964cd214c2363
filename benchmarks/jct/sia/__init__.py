"""Our re-implementation of Sia's simulator: three kinds of accelerators, and jobs that use one kind
at a time.

Its rules are those of Sia's artifact (Jayaram Subramanya et al., SOSP 2023), described in
``cluster-benchmark.md`` section 3.2. The package also has Sia's policy, and Brain's.

    cluster    kinds of nodes, and the tables of every application on each
    model      the step-time model that agents and Sia fit, one per kind
    jobs       a job in virtual time
    policy     Sia
    turn       Brain's service
    run        rounds of 60 seconds until every job has ended
    rows       the rows of the report
"""
