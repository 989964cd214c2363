"""Models that predict, each with its uncertainty. Pure; numpy, scipy and scikit-learn only.

    fitting, throughput     from samples to points, and throughput over replicas (used by the cycle)
    step_time               step time over nodes, replicas, batches and kinds of accelerator
    efficiency, goodput     worth of an example of a large batch; the best batch of a size
    restart, remaining      cost of a change, and the time left to pay it back
    calibration             promised against measured

A model that cannot answer raises ``Undetermined``.

scikit-learn and scipy's subpackages are imported by what fits, when it first does: they take as
long as everything else that a service imports. So ``scipy.stats`` is written out, which scipy
imports when it is used, and estimators are imported in functions.
"""
