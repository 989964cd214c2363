"""Step time over nodes, replicas, local batch and accumulation: an ensemble of small models.

Estimators follow scikit-learn's contract. Their ``X`` has the columns of ``columns``, their ``y``
is the natural logarithm of seconds per optimizer step, and ``predict(X, return_std=True)`` returns
mean and standard deviation of that logarithm: a log-normal step time.

    columns            the input of each model (*member*) of the ensemble
    physics            the physical member's formula
    physical, linear   the members
    feeding            data loading that does not scale
    ensemble           the members' mean
    evidence           the data behind a fit
    accelerators       one ensemble per kind of accelerator, and ratios between them
    trials             the choice of the next configuration to measure
"""
