"""Chooses nodes: whole nodes in one rack for large jobs; for small jobs, the fullest node that has
room.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from brain.pool.allocator.views import JobPlacement, PoolNode

#: Names of nodes in the order of insertion; a set with an order.
Names = dict[str, None]
#: Path of a node in the network, widest part first.
Path = tuple[str, ...]
#: Nodes, and the number of replicas on each.
Shape = list[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Need:
    """Replicas to be placed."""

    accelerator: str
    replicas: int
    #: Accelerators of each replica.
    each: int
    #: Nodes to spread the replicas over; 0: as few as possible.
    spread: int = 0


class FreeAccelerators:
    """Free accelerators of every healthy node.

    All choices are deterministic: among equal nodes the one with the first path and name is taken.
    """

    def __init__(self, nodes: Iterable[PoolNode]) -> None:
        ordered = sorted(nodes, key=lambda node: (node.path, node.name))
        self.nodes = {node.name: node for node in ordered}
        #: Nodes by path: ranks of neighbours are close.
        self.rank = {node.name: index for index, node in enumerate(ordered)}
        self.free = {node.name: node.capacity for node in ordered}
        self.largest: dict[str, int] = defaultdict(int)
        #: Nodes by type and number of free accelerators.
        self._shelves: dict[str, dict[int, Names]] = defaultdict(dict)
        #: Nodes without any job, by type and path.
        self._empty: dict[str, dict[Path, Names]] = defaultdict(dict)
        for node in ordered:
            self.largest[node.accelerator] = max(self.largest[node.accelerator], node.capacity)
            self._put(node)

    def occupy(self, placement: JobPlacement, each: int, *, sign: int = 1) -> None:
        """Take a placement's accelerators on nodes that are known here; ``sign`` -1 frees them."""
        for name, replicas in Counter(placement.nodes).items():
            if name in self.nodes:
                self._take(self.nodes[name], sign * replicas * each)

    def release(self, placement: JobPlacement, each: int) -> None:
        """Give back the accelerators that ``occupy`` or ``place`` took."""
        self.occupy(placement, each, sign=-1)

    def place(self, need: Need, own: Sequence[str] = ()) -> JobPlacement | None:
        """Choose nodes for ``need``, if possible the job's own nodes; return None if the free nodes
        do not suffice.
        """
        return self._seize(need, self._find(need, own))

    def squeeze(self, need: Need) -> JobPlacement | None:
        """Choose exactly as many nodes as ``need`` names; return None if the free nodes do not
        suffice.

        The nodes may hold different numbers of replicas.
        """
        return self._seize(need, self._level(need))

    def scatter(self, need: Need, own: Sequence[str] = ()) -> JobPlacement | None:
        """Choose as few nodes as possible for ``need``, in any shape; return None if the free nodes
        do not suffice.
        """
        return self._seize(need, self._anywhere(need, own))

    def _seize(self, need: Need, found: Shape | None) -> JobPlacement | None:
        if found is None:
            return None
        found.sort(key=lambda part: self.rank[part[0]])
        for name, replicas in found:
            self._take(self.nodes[name], replicas * need.each)
        names = tuple(name for name, replicas in found for _ in range(replicas))
        return JobPlacement(need.accelerator, names)

    def _take(self, node: PoolNode, accelerators: int) -> None:
        self._shelves[node.accelerator][self.free[node.name]].pop(node.name)
        if self.free[node.name] == node.capacity:
            self._empty[node.accelerator][node.path].pop(node.name)
        self.free[node.name] -= accelerators
        self._put(node)

    def _put(self, node: PoolNode) -> None:
        free = self.free[node.name]
        self._shelves[node.accelerator].setdefault(free, {})[node.name] = None
        if free == node.capacity:
            self._empty[node.accelerator].setdefault(node.path, {})[node.name] = None

    def _find(self, need: Need, own: Sequence[str]) -> Shape | None:
        per_node = self.largest[need.accelerator] // need.each
        if per_node == 0:
            return None
        if need.spread > -(-need.replicas // per_node):
            return self._spread(need)
        if need.replicas > per_node:
            return self._whole(need, own)
        one = self._fullest(need.accelerator, need.replicas * need.each, own, frozenset())
        return None if one is None else [(one, need.replicas)]

    def _whole(self, need: Need, own: Sequence[str]) -> Shape | None:
        """Return empty nodes close to each other, and the fullest node with room for the
        remaining replicas.
        """
        found, left = [], need.replicas
        for name in self._neighbours(need, own):
            room = self.nodes[name].capacity // need.each
            if 0 < room <= left:
                found.append((name, room))
                left -= room
            if left < self.largest[need.accelerator] // need.each:
                break
        if not left:
            return found
        used = frozenset(name for name, _ in found)
        last = self._fullest(need.accelerator, left * need.each, own, used)
        return None if last is None else [*found, (last, left)]

    def _neighbours(self, need: Need, own: Sequence[str]) -> Iterable[str]:
        """Return empty nodes of the narrowest part of the network that has enough of them."""
        racks = {path: names for path, names in self._empty[need.accelerator].items() if names}
        wanted = need.replicas * need.each // self.largest[need.accelerator]
        mine = [self.nodes[name].path for name in own if name in self.nodes]
        part = _narrowest(racks, wanted, mine)
        for path in sorted(
            racks, key=lambda path: (path[: len(part)] != part, -len(racks[path]), path)
        ):
            names = racks[path]
            yield from (name for name in dict.fromkeys(own) if name in names)
            yield from (name for name in list(names) if name not in own)

    def _fullest(
        self, kind: str, room: int, own: Sequence[str], used: frozenset[str]
    ) -> str | None:
        """Return a node with ``room``: one of the job's own, else the node with the fewest
        accelerators to spare.
        """
        for name in dict.fromkeys(own):
            if name not in used and self._has(name, kind) and self.free[name] >= room:
                return name
        shelves = self._shelves[kind]
        for size in sorted(size for size, names in shelves.items() if size >= room and names):
            for name in shelves[size]:
                if name not in used:
                    return name
        return None

    def _spread(self, need: Need) -> Shape | None:
        """Return a shape with equal counts on ``spread`` nodes, the fullest that have room."""
        low, more = divmod(need.replicas, need.spread)
        found: Shape = []
        for index in range(need.spread if low else 0):
            replicas = low + (index < more)
            used = frozenset(name for name, _ in found)
            name = self._fullest(need.accelerator, replicas * need.each, (), used)
            if name is None:
                return None
            found.append((name, replicas))
        return found or None

    def _level(self, need: Need) -> Shape | None:
        """Return a shape over exactly ``spread`` nodes, the emptiest, as even as their room
        allows.
        """
        rooms = self._rooms(need)
        names = sorted(rooms, key=lambda name: (-rooms[name], self.rank[name]))[: need.spread]
        if not need.spread or len(names) < need.spread:
            return None
        if sum(rooms[name] for name in names) < need.replicas or need.replicas < need.spread:
            return None
        shares, left, level = dict.fromkeys(names, 1), need.replicas - need.spread, 2
        while left:
            for name in names:
                if left and shares[name] < min(rooms[name], level):
                    shares[name] += 1
                    left -= 1
            level += 1
        return list(shares.items())

    def _anywhere(self, need: Need, own: Sequence[str]) -> Shape | None:
        """Return a shape over any free accelerators; the emptiest nodes come first so that few
        are used.
        """
        rooms = self._rooms(need)
        found: Shape = []
        left = need.replicas
        for name in sorted(rooms, key=lambda n: (-rooms[n], n not in own, self.rank[n])):
            found.append((name, min(rooms[name], left)))
            left -= found[-1][1]
            if not left:
                return found
        return None

    def _rooms(self, need: Need) -> dict[str, int]:
        """Return the number of the replicas that each node could take."""
        return {
            name: size // need.each
            for size, names in self._shelves[need.accelerator].items()
            for name in names
            if size >= need.each
        }

    def _has(self, name: str, kind: str) -> bool:
        return name in self.nodes and self.nodes[name].accelerator == kind


def _narrowest(racks: Mapping[Path, Names], wanted: int, mine: Sequence[Path]) -> Path:
    """Return the longest prefix of paths whose nodes suffice: one of the job's own, else the
    fullest.
    """
    for level in range(max(map(len, racks), default=0), 0, -1):
        held: Counter[Path] = Counter()
        for path, names in racks.items():
            held[path[:level]] += len(names)
        own = {path[:level] for path in mine}
        enough = [(part not in own, held[part], part) for part in held if held[part] >= wanted]
        if enough:
            return min(enough)[2]
    return ()
