"""How fast the API server takes pods: the operator's requests without an operator."""

import argparse
import json
import threading
from collections.abc import Iterator

import urllib3

from benchmarks.kubernetes import workload


def requests(url: str) -> Iterator[tuple[str, bytes]]:
    """Path and body of every pod's apply, of jobs as they are kept."""
    pool = urllib3.PoolManager(cert_reqs="CERT_NONE")
    path = f"{url}/apis/{workload.GROUP}/{workload.VERSION}/namespaces/{workload.NAMESPACE}"
    for job in pool.request("GET", f"{path}/elasticjobs").json()["items"]:
        for pod in workload.pods(job):
            name = pod["metadata"]["name"]
            where = f"{url}/api/v1/namespaces/{workload.NAMESPACE}/pods/{name}"
            yield f"{where}?fieldManager=brain-scaler&force=true", json.dumps(pod).encode()


def main() -> None:
    # Whom it speaks to is not the question here.
    urllib3.disable_warnings()
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--connections", type=int, required=True)
    options = parser.parse_args()
    waiting, lock = requests(options.url), threading.Lock()
    pool = urllib3.PoolManager(
        maxsize=options.connections, block=True, cert_reqs="CERT_NONE", assert_hostname=False
    )
    headers = {"Content-Type": "application/apply-patch+yaml", "User-Agent": "raw"}

    def send() -> None:
        while True:
            with lock:
                found = next(waiting, None)
            if found is None:
                return
            answer = pool.request("PATCH", found[0], body=found[1], headers=headers)
            assert answer.status < 300, answer.data

    threads = [threading.Thread(target=send) for _ in range(options.connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
