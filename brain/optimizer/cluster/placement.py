"""Which nodes: unchanged jobs stay, whole nodes first, the rest where it fits best."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from brain.optimizer.cluster.views import NodeView, Placement


@dataclass(frozen=True, slots=True)
class Need:
    """Replicas to be placed."""

    accelerator: str
    replicas: int
    #: Accelerators of each.
    each: int
    #: Nodes to spread over; 0: as few as possible.
    spread: int = 0


class Floor:
    """Free accelerators of every healthy node, by type and by how many are free."""

    def __init__(self, nodes: Iterable[NodeView]) -> None:
        self.nodes = {node.name: node for node in nodes}
        #: Nodes in the order of their paths: neighbours are close.
        ordered = sorted(self.nodes.values(), key=lambda node: (node.path, node.name))
        self.rank = {node.name: index for index, node in enumerate(ordered)}
        self.free = {node.name: node.capacity for node in ordered}
        #: By type and number of free accelerators: names, in an insertion-ordered set.
        self.shelves: dict[str, dict[int, dict[str, None]]] = defaultdict(dict)
        for node in ordered:
            self._shelve(node.name)

    def _shelve(self, name: str) -> None:
        kind = self.nodes[name].accelerator
        self.shelves[kind].setdefault(self.free[name], {})[name] = None

    def take(self, name: str, accelerators: int) -> None:
        """Take accelerators of a node; below 0 gives them back."""
        kind = self.nodes[name].accelerator
        self.shelves[kind][self.free[name]].pop(name)
        self.free[name] -= accelerators
        self._shelve(name)

    def occupy(self, placement: Placement, each: int, sign: int = 1) -> None:
        """Take what a placement needs, where its nodes are known; ``sign`` -1 frees it."""
        for name, replicas in Counter(placement.nodes).items():
            if name in self.nodes:
                self.take(name, sign * replicas * each)

    def place(self, need: Need, own: Sequence[str] = ()) -> Placement | None:
        """Find and take nodes for ``need``, its own nodes first; None where they do not fit."""
        found = self._spread(need, own) if need.spread else self._packed(need, own)
        if found is None:
            return None
        names = [name for name, replicas in found for _ in range(replicas)]
        names.sort(key=self.rank.__getitem__)
        placement = Placement(need.accelerator, tuple(names))
        self.occupy(placement, need.each)
        return placement

    def _packed(self, need: Need, own: Sequence[str]) -> list[tuple[str, int]] | None:
        """Whole nodes, then the rest on the fullest node that has room for it."""
        shelves = self.shelves[need.accelerator]
        largest = max((self.nodes[n].capacity for s in shelves.values() for n in s), default=0)
        per_node = largest // need.each
        if per_node == 0:
            return None
        whole, rest = divmod(need.replicas, per_node)
        found = [
            (name, per_node) for name in self._whole(shelves, per_node * need.each, whole, own)
        ]
        if len(found) < whole:
            return None
        if rest:
            used = {name for name, _ in found}
            last = self._fullest(shelves, rest * need.each, used, own)
            if last is None:
                return None
            found.append((last, rest))
        return found

    def _whole(
        self, shelves: dict[int, dict[str, None]], room: int, how_many: int, own: Sequence[str]
    ) -> list[str]:
        free = [name for size in shelves if size >= room for name in shelves[size]]
        mine = set(own)
        free.sort(key=lambda name: (name not in mine, self.rank[name]))
        return free[:how_many]

    def _fullest(
        self,
        shelves: dict[int, dict[str, None]],
        room: int,
        but: set[str],
        own: Sequence[str],
    ) -> str | None:
        for size in sorted(size for size in shelves if size >= room):
            names = [name for name in shelves[size] if name not in but]
            if names:
                mine = [name for name in names if name in own]
                return min(mine or names, key=self.rank.__getitem__)
        return None

    def _spread(self, need: Need, own: Sequence[str]) -> list[tuple[str, int]] | None:
        """Evenly over exactly ``spread`` nodes, the fullest that have room."""
        low, more = divmod(need.replicas, need.spread)
        if low == 0:
            return None
        found: list[tuple[str, int]] = []
        used: set[str] = set()
        for index in range(need.spread):
            replicas = low + (index < more)
            name = self._fullest(self.shelves[need.accelerator], replicas * need.each, used, own)
            if name is None:
                return None
            used.add(name)
            found.append((name, replicas))
        return found
