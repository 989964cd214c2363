"""Jobs of other projects, behind the same port as ours.

    foreign       what annotations say: bounds, and whether Brain may act at all
    kubeflow      a PyTorchJob as Kubeflow's operator reads it; what stands against resizing it
    record        which replicas were asked for, kept in a Secret of ours beside the job
    sources       what is known of all objects: reflected, or asked for
    pytorchjob    the ``JobBackend``
    worlds        what a coordinator would say, from what is seen of pods
    mirror        a copy of each job in Brain, and those worlds

The objects are other people's: no annotation, label or finalizer of ours goes on them. What is
written is the size that their own API offers (the scale subresource, ``suspend``), and only where
the object's owner allows it by annotation. No adapter here has met the real project yet.
"""
