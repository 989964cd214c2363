"""The start of an operator: waits until the API server answers, and asks which kinds it serves.

An operator (or an adapter) that starts during an outage of the API server waits until the outage
ends. The process exits only on an error that waiting cannot remove: refused credentials, a missing
permission or a certificate that is not trusted. A wrong address looks like an outage, so the
process waits then, too.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from brain.errors import BadInput, NotAllowed, NotFound, NotSignedIn
from scaler.kubernetes.dependents.own_pod import injected
from scaler.kubernetes.operator import dlrover
from scaler.kubernetes.operator.options import OperatorOptions
from scaler.kubernetes.plans.requests import JOB
from scaler.kubernetes.pods import gang
from scaler.kubernetes.pods.manifest import AgentInjection
from scaler.kubernetes.pods.orders import Installation
from scaler.kubernetes.pods.quota import WORKLOAD
from scaler.kubernetes.runtime import Backoff, Clock, Cluster, SystemClock, served
from scaler.kubernetes.runtime.cluster import (
    HPA,
    POD,
    VPA,
    Kind,
    TooMany,
    Unreachable,
    Untrusted,
)

T = TypeVar("T")
log = logging.getLogger(__name__)

#: The longest pause is that of a watch during an outage.
_PAUSES = Backoff(first_seconds=0.5, longest_seconds=5.0)
#: Seconds between two lines of the log about the same outage.
_SAY_SECONDS = 60.0
#: Seconds that the server may take to answer if it is ready.
_ANSWER_SECONDS = 5.0
#: Seconds after an outage in which a refusal may come from a server that has not read its accounts
#: and roles yet.
_SETTLING_SECONDS = 30.0
#: Longest sleep, after which a request to stop is noticed.
_LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """Facts about a cluster that an operator finds out once, when it starts."""

    #: Volcano schedules gangs.
    volcano: bool
    #: The server resizes pods in place (1.33 and later).
    resizes: bool
    autoscalers: tuple[Kind, ...]
    #: Kueue admits jobs.
    workloads: bool
    #: Agent injection, with the image of this operator's own pod filled in.
    injection: AgentInjection | None

    def installation(self, options: OperatorOptions, *, kueue: bool) -> Installation:
        """Return the settings for all pods. ``kueue``: the operator follows Kueue's Workloads."""
        return Installation(
            injection=self.injection,
            brain_url=options.url and (options.pods_url or options.url),
            volcano=self.volcano,
            kueue=kueue,
        )


def find_out(cluster: Cluster, options: OperatorOptions) -> ClusterFacts:
    """Ask the API server which kinds it serves, and check that this operator may act in the
    cluster.

    Raises:
        BadInput: DLRover's controller serves these jobs, or the image of this operator's pod cannot
            be read.
        NotAllowed: the operator lacks a permission that it always needs.
        Unreachable: the server does not answer.
    """
    spaces = options.namespaces
    # An operator with named namespaces promises that they are disjoint from another's.
    if not spaces:
        dlrover.refuse_beside(cluster, options.own_namespace)
    for namespace in spaces or ("",):
        try:
            cluster.list(JOB, namespace, limit=1)
        except NotFound:
            # Without the CRDs the operator waits for them: its stores list them again.
            break
    resources = cluster.read(POD.root).get("resources") or ()
    return ClusterFacts(
        volcano=served(cluster, gang.POD_GROUP, spaces),
        resizes=any(each.get("name") == "pods/resize" for each in resources),
        autoscalers=tuple(kind for kind in (HPA, VPA) if served(cluster, kind, spaces)),
        workloads=served(cluster, WORKLOAD, spaces),
        injection=injected(options.injection, cluster, options.own_namespace),
    )


class ServerWait:
    """Asks an API server the first questions, and repeats them until the server answers."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        stopped: Callable[[], bool],
        clock: Clock | None = None,
        random: Random | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster, self._stopped = cluster, stopped
        self._clock, self._random = clock or SystemClock(), random or Random()
        self._sleep = sleep
        #: Reason of the wait; empty if there is none.
        self.trouble = ""
        self._failures = 0
        #: Time of the first failure, of the last line of the log about it, and of the first refusal
        #: afterwards.
        self._began = self._said = 0.0
        self._refused_at: float | None = None

    def ask(self, questions: Callable[[], T]) -> T | None:
        """Return the result of ``questions``; during an outage, wait and ask again.

        None means that this process must stop.

        Raises:
            BadInput: waiting does not help; the message names the remedy.
        """
        while not self._stopped():
            try:
                self._look()
                answers = questions()
            except (NotAllowed, NotSignedIn, Untrusted) as why:
                if isinstance(why, Untrusted) or not self._settling():
                    raise BadInput(self._remedy(why), field="kubeconfig") from why
                self._pause(str(why), 0.0)
            except (Unreachable, TooMany) as why:
                self._refused_at = None
                self._pause(str(why), why.retry_after_seconds or 0.0)
            else:
                if self._failures:
                    waited = self._clock.elapsed() - self._began
                    log.info("the API server at %s answers after %.0f s", self._host, waited)
                self.trouble = ""
                return answers
        return None

    @property
    def _host(self) -> str:
        return self._cluster.host

    def _look(self) -> None:
        """Ask if the server is ready: before that it refuses what its roles allow."""
        try:
            self._cluster.hasty(_ANSWER_SECONDS).ready()
        except NotFound:
            # A proxy that does not pass this question on.
            return
        except NotAllowed:
            # Some clusters allow this question to few accounts.
            if self._settling():
                raise

    def _settling(self) -> bool:
        """True if the server may not know its accounts and roles yet."""
        if not self._failures:
            return False
        now = self._clock.elapsed()
        self._refused_at = now if self._refused_at is None else self._refused_at
        return now - self._refused_at < _SETTLING_SECONDS

    def _pause(self, why: str, asked_seconds: float) -> None:
        now = self._clock.elapsed()
        if not self._failures:
            self._began = now
        if not self._failures or now - self._said >= _SAY_SECONDS:
            self._said = now
            log.warning(
                "the API server at %s does not answer, and this process waits for it: %s; if the "
                "address is wrong, correct the kubeconfig",
                self._host,
                why,
            )
        self._failures += 1
        self.trouble = f"waits for the API server at {self._host}: {why}"
        until = now + max(_PAUSES.pause(self._failures, self._random), asked_seconds)
        while (left := until - self._clock.elapsed()) > 0.0 and not self._stopped():
            self._sleep(min(left, _LOOK_SECONDS))

    def _remedy(self, why: Exception) -> str:
        match why:
            case Untrusted():
                return (
                    f"{why}; set certificate-authority in the kubeconfig to the authority that "
                    f"signed the certificate of {self._host}"
                )
            case NotSignedIn():
                return (
                    f"the API server at {self._host} refuses the credentials of this process: "
                    f"{why}; renew the token or the certificate in the kubeconfig, or restart the "
                    "pod if its service account was replaced"
                )
            case _:
                return (
                    f"this process lacks a permission at {self._host}: {why}; `brain doctor "
                    "--cluster` names all that are missing"
                )
