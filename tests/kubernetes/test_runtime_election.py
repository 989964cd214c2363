"""At most one operator acts at any moment, and another soon follows one that died."""

from random import Random

import pytest

from scaler.kubernetes.runtime.cluster import LEASE, ClientLimits, Cluster, NotLeading, Unreachable
from scaler.kubernetes.runtime.cluster.transport import TransportAnswer, TransportRequest
from scaler.kubernetes.runtime.election import Election, ElectionTerms
from tests.kubernetes.shelf import Shelf, VirtualClock

TERMS = ElectionTerms(namespace="brain")


class Candidate:
    """An operator with a clock of its own, that may be cut off or stand still."""

    def __init__(self, name: str, shelf: Shelf, random: Random, *, rate: float = 1.0) -> None:
        self.name = name
        self.clock = VirtualClock(rate=rate, offset=random.uniform(0, 1e6))
        self.cut = False
        self.next_at = 0.0
        self.random, self._shelf = random, shelf
        self.lives = 0
        self.begin()

    def begin(self) -> None:
        """Begin as a new process."""
        self.lives += 1
        cluster = Cluster(self, ClientLimits(attempts=1), clock=self.clock, random=self.random)
        name = f"{self.name}-{self.lives}"
        self.election = Election(cluster, TERMS, name, clock=self.clock, random=self.random)

    host = "http://shelf"

    def send(self, request: TransportRequest, *, seconds: float) -> TransportAnswer:
        if self.cut:
            # What was sent may have arrived although no answer comes back.
            if self.random.random() < 0.3:
                self._shelf.send(request, seconds=seconds)
            raise Unreachable("cut")
        return self._shelf.send(request, seconds=seconds)

    def stream(self, request: TransportRequest, **limits: float) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass

    def at(self, now: float) -> None:
        """Let its clock reach ``now``; take a step if one is due. A deposed one begins anew."""
        self.clock.seconds = now
        if self.election.deposed:
            self.begin()
        if now >= self.next_at:
            self.next_at = now + self.election.step() / self.clock._rate

    @property
    def leads(self) -> bool:
        return self.election.leading


def play(candidates: list[Candidate], start: float, seconds: float, tick: float = 0.1) -> float:
    """Let time pass; True time of the end. No two may ever lead at once."""
    now = start
    while now < start + seconds:
        now += tick
        for candidate in candidates:
            candidate.at(now)
        leaders = [each.name for each in candidates if each.leads]
        assert len(leaders) <= 1, f"at {now:.1f} s {leaders} lead"
    return now


def led(candidates: list[Candidate], start: float, limit: float) -> float:
    """Seconds until somebody leads."""
    now = start
    while not any(each.leads for each in candidates):
        assert now - start < limit, f"nobody leads after {limit} s"
        now = play(candidates, now, 0.1)
    return now - start


def pair(shelf: Shelf, seed: int = 1) -> list[Candidate]:
    random = Random(seed)
    return [Candidate(name, shelf, random) for name in ("first", "second")]


def test_one_of_two_leads_and_goes_on_leading() -> None:
    both = pair(Shelf())
    led(both, 0.0, 15.0)
    (leader,) = (each for each in both if each.leads)
    play(both, 15.0, 300.0)
    assert leader.leads


@pytest.mark.parametrize("seed", range(5))
def test_another_leads_once_it_has_seen_no_renewal_for_the_time_of_the_lease(seed: int) -> None:
    both = pair(Shelf(), seed)
    led(both, 0.0, 15.0)
    now = play(both, 15.0, 20.0 + seed / 3)
    (survivor,) = (each for each in both if not each.leads)
    # The last renewal was seen by the next look, and time passes in tenths of a second here.
    most = TERMS.lease_seconds + 1.2 * TERMS.retry_seconds + 0.2
    assert led([survivor], now, 15.0) <= most


def test_a_leader_that_was_cut_off_leads_again_at_once_if_nobody_took_its_lease() -> None:
    first, _ = pair(Shelf())
    led([first], 0.0, 15.0)
    first.cut = True
    now = play([first], 15.0, 60.0)
    assert not first.leads
    first.cut = False
    assert led([first], now, 5.0) <= 1.3 * TERMS.retry_seconds
    assert first.lives == 1


def test_a_leader_whose_lease_another_one_took_leads_no_more() -> None:
    first, second = pair(Shelf())
    led([first], 0.0, 15.0)
    election = first.election
    first.cut = True
    now = play([first, second], 15.0, 30.0)
    assert second.leads
    second.election.release()
    first.cut = False
    for _ in range(10):
        first.clock.seconds = now = now + 1.0
        election.step()
        assert not election.leading
    assert election.deposed


def test_a_lease_that_was_handed_back_is_taken_at_the_next_look() -> None:
    both = pair(Shelf())
    led(both, 0.0, 15.0)
    now = play(both, 15.0, 20.0)
    (leader,), (other,) = [
        [each for each in both if each.leads is wanted] for wanted in (True, False)
    ]
    leader.election.release()
    assert not leader.leads
    assert led([other], now, 5.0) <= 2.0


def test_who_cannot_renew_stops_before_another_may_begin() -> None:
    both = pair(Shelf())
    led(both, 0.0, 15.0)
    now = play(both, 15.0, 20.0)
    (leader,) = (each for each in both if each.leads)
    leader.cut = True
    play(both, now, 60.0)
    assert not leader.leads
    with pytest.raises(NotLeading, match="brain/brain-scaler"):
        leader.election.left()


def test_a_lease_that_somebody_deleted_makes_no_second_leader() -> None:
    shelf = Shelf()
    both = pair(shelf)
    led(both, 0.0, 15.0)
    now = play(both, 15.0, 20.0)
    for candidate in both:
        candidate.cut = candidate.leads
    shelf.drop("brain", "brain-scaler", LEASE)
    now = play(both, now, 30.0)
    assert [each.leads for each in both].count(True) == 1


@pytest.mark.parametrize("seed", range(40))
def test_no_two_ever_lead_whatever_is_cut_and_however_clocks_go(seed: int) -> None:
    random, shelf = Random(seed), Shelf()
    candidates = [Candidate(name, shelf, random, rate=random.uniform(0.9, 1.1)) for name in "abc"]
    now = 0.0
    for _ in range(30):
        for candidate in candidates:
            candidate.cut = random.random() < 0.3
            if random.random() < 0.2:
                # A process that stood still: its clock goes on, its steps do not.
                candidate.next_at = now + random.uniform(0.0, 20.0)
        if random.random() < 0.1 and shelf.objects:
            shelf.drop("brain", "brain-scaler", LEASE)
        now = play(candidates, now, random.uniform(0.5, 12.0), tick=0.2)
    for candidate in candidates:
        candidate.cut = False
    led(candidates, now, 40.0)


def test_a_lease_that_makes_no_sense_costs_the_lead_and_not_the_thread() -> None:
    shelf = Shelf()
    both = pair(shelf)
    spec = {"holderIdentity": "x", "leaseDurationSeconds": "soon"}
    shelf.put({"metadata": {"namespace": "brain", "name": "brain-scaler"}, "spec": spec}, LEASE)
    play(both, 0.0, 5.0)
    shelf.drop("brain", "brain-scaler", LEASE)
    led(both, 5.0, 15.0)


def test_terms_under_which_two_could_lead_are_refused() -> None:
    with pytest.raises(ValueError, match="renew_seconds 7 and lease_seconds 7"):
        ElectionTerms(namespace="brain", renew_seconds=7.0)
