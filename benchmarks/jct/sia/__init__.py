"""Sia's simulator in our own words: three kinds of accelerators, jobs that use one at a time.

Semantics are those of the artifact of Sia (Jayaram Subramanya et al., SOSP 2023), described in
``cluster-benchmark.md`` section 3.2. Beside it: Sia's policy, and Brain's.

    cluster    kinds of nodes, and the tables of every application on each
    model      the step-time model that agents and Sia fit, one per kind
    jobs       a job in virtual time
    policy     Sia
    turn       Brain's service
    run        rounds of 60 seconds until every job is done
    rows       what is reported
"""
