"""Places jobs on the emptiest nodes first, as Tiresias and Optimus do in Pollux's simulator."""

from collections.abc import Iterable, Sequence

from benchmarks.jct.pollux import Allocation


def fill(
    held: Allocation, missing: Iterable[tuple[str, int]], capacity: Sequence[int]
) -> dict[str, Sequence[int]]:
    """Place each of ``missing`` (name, GPUs) on the emptiest nodes, in addition to the placements
    in ``held``.

    >>> fill({"a": [0, 0]}, [("b", 3)], [4, 2])
    {'a': [0, 0], 'b': [0, 0, 1]}
    """
    free = list(capacity)
    for nodes in held.values():
        for node in nodes:
            free[node] -= 1
    found = dict(held)
    for name, wanted in missing:
        nodes = list[int]()
        while len(nodes) < wanted:
            node = max(range(len(free)), key=lambda at: free[at])
            taken = min(free[node], wanted - len(nodes))
            nodes += [node] * taken
            free[node] -= taken
        found[name] = nodes
    return found
