"""The free resources of each node, and the resources that planned changes will free."""

from collections.abc import Mapping

from brain.types.resources import NodeName, Resources

#: CPU, memory and accelerators.
_Amount = list[int]


class Claims:
    """The resources for new replicas: first the idle ones, then the ones that other jobs' changes
    free.

    A job that takes offered resources waits for the change that frees them.
    """

    def __init__(self, idle: Mapping[NodeName, Resources]) -> None:
        self._idle = {name: _amount(have) for name, have in idle.items()}
        #: Offered resources by node, in the order of the offers.
        self._offers: dict[NodeName, dict[str, _Amount]] = {}

    def offer(self, key: str, freed: Mapping[NodeName, Resources]) -> None:
        """Offer other jobs the resources that the change of a job frees."""
        for name, amount in freed.items():
            self._offers.setdefault(name, {})[key] = _amount(amount)

    def withdraw(self, key: str) -> None:
        """Cancel the offer of a job whose change is not carried out."""
        for offers in self._offers.values():
            offers.pop(key, None)

    def lacking(self, gained: Mapping[NodeName, int], each: Resources) -> int:
        """Return the number of new replicas that do not fit the idle resources."""
        one = _amount(each)
        short = 0
        for name, replicas in gained.items():
            idle = self._idle.get(name, [0, 0, 0])
            fits = [max(0, have) // n for n, have in zip(one, idle, strict=True) if n > 0]
            short += max(0, replicas - min(fits, default=replicas))
        return short

    def rooms(self, each: Resources) -> dict[str, int]:
        """Return how many replicas fit the idle resources of each node."""
        one, found = _amount(each), {}
        for name, idle in self._idle.items():
            fits = [max(0, have) // n for n, have in zip(one, idle, strict=True) if n > 0]
            found[str(name)] = min(fits, default=0)
        return found

    def take(self, gained: Mapping[NodeName, int], each: Resources) -> tuple[str, ...] | None:
        """Take resources for new replicas by node; return the jobs whose changes must free them
        first.

        Returns None, and takes nothing, if the resources do not suffice.
        """
        parts: list[tuple[_Amount, _Amount]] = []
        providers: dict[str, None] = {}
        for name, replicas in gained.items():
            need = _amount(each.times(replicas))
            idle = self._idle.get(name, [0, 0, 0])
            for key, source in [("", idle), *self._offers.get(name, {}).items()]:
                part = [max(0, min(n, have)) for n, have in zip(need, source, strict=True)]
                if any(part):
                    need = [n - p for n, p in zip(need, part, strict=True)]
                    parts.append((source, part))
                    providers |= {key: None} if key else {}
            if any(need):
                return None
        for source, part in parts:
            source[:] = [have - p for have, p in zip(source, part, strict=True)]
        return tuple(providers)


def _amount(resources: Resources) -> _Amount:
    return [resources.cpu_millis, resources.memory_bytes, resources.gpus]
