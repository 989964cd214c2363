"""Models that predict, each with its uncertainty. They are pure and use only numpy, scipy and
scikit-learn.

    fitting, job, job_fit   from samples to points, and throughput over replicas (used by the cycle)
    step_time               step time over nodes, replicas, batches and kinds of accelerator
    efficiency, goodput     value of an example in a large batch; the best batch size at a job size
    restart, remaining      cost of a change, and the time left to pay it back
    calibration             promised against measured

A model that cannot answer raises ``Undetermined``.

scikit-learn and scipy's subpackages are imported at the first fit, because they take as long as all
other imports of a service. So modules write ``scipy.stats`` in full, which scipy imports at its
first use, and import estimators inside functions.
"""
