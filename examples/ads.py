"""A small recommender: TensorFlow 2 with parameter servers, without any code of Brain.

An embedding table is spread over the servers by rows, and keys are drawn by Zipf's law, so that the
first server has the most work. One process coordinates (``chief``), ``worker`` compute, ``ps`` hold
the table. Keras 3 does not train with parameter servers, hence the loop.
"""

import argparse

import tensorflow as tf

options = argparse.ArgumentParser()
options.add_argument("--steps", type=int, default=2000)
options.add_argument("--rows", type=int, default=200_000)
options.add_argument("--width", type=int, default=32)
options.add_argument("--batch", type=int, default=512)
options.add_argument("--exponent", type=float, default=1.2, help="of Zipf's law")
options.add_argument("--round", type=int, default=20, help="steps between two joins")
options.add_argument("--every", type=int, default=500, help="steps between two checkpoints")
options.add_argument("--checkpoints", default="checkpoints")
said = options.parse_args()

tf.config.threading.set_inter_op_parallelism_threads(2)
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol="grpc",
        start=True,
    ).join()

servers = resolver.cluster_spec().num_tasks("ps")
partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(servers)
strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    table = tf.Variable(tf.random.normal([said.rows, said.width], stddev=0.01), name="table")
    dense = tf.Variable(tf.random.normal([said.width, 1], stddev=0.1), name="dense")
    step = tf.Variable(0, dtype=tf.int64, name="step")
checkpoint = tf.train.Checkpoint(table=table, dense=dense, step=step)
manager = tf.train.CheckpointManager(checkpoint, said.checkpoints, max_to_keep=2)
if manager.latest_checkpoint:
    checkpoint.restore(manager.latest_checkpoint)
print(f"{servers} servers, begins at step {int(step.numpy())}", flush=True)


def keys() -> tf.Tensor:
    """Draw the rows of a batch by Zipf's law, by its inverse: most keys fall on a few rows."""
    uniform = tf.random.uniform([said.batch], 1e-6, 1.0)
    rank = tf.math.pow(uniform, -1.0 / (said.exponent - 1.0)) - 1.0
    return tf.cast(tf.minimum(rank, float(said.rows - 1)), tf.int64)


@tf.function
def train() -> tf.Tensor:
    """One step of one worker."""
    wanted = keys()
    labels = tf.cast(wanted % 2, tf.float32)[:, None]
    with tf.GradientTape() as tape:
        rows = tf.nn.embedding_lookup(table, wanted)
        loss = tf.reduce_mean(
            tf.nn.sigmoid_cross_entropy_with_logits(labels, tf.matmul(rows, dense))
        )
    variables = [*table.variables, *dense.variables]
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        if isinstance(gradient, tf.IndexedSlices):
            down = tf.IndexedSlices(0.1 * gradient.values, gradient.indices)
            variable.scatter_sub(down)
        elif gradient is not None:
            variable.assign_sub(0.1 * gradient)
    step.assign_add(1)
    return loss


while int(step.numpy()) < said.steps:
    for _ in range(said.round):
        coordinator.schedule(train)
    coordinator.join()
    if int(step.numpy()) % said.every < said.round:
        manager.save()
manager.save()
print(f"done at step {int(step.numpy())}", flush=True)
