"""Models that predict, each with its uncertainty. Pure; numpy, scipy and scikit-learn only.

    fitting, throughput     from samples to points, and throughput over replicas (what cycle uses)
    step_time               step time over nodes, replicas, batches and kinds of accelerator
    efficiency, goodput     what an example of a large batch is worth; the best batch of a size
    restart, remaining      what a change costs, and the time left to pay it back
    calibration             promised against measured

A model that cannot know raises ``Undetermined``.
"""
