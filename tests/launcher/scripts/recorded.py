"""A worker that fails on record, all of them or the rank it is given."""

import os
import sys
import time

from torch.distributed.elastic.multiprocessing.errors import record


@record
def main() -> None:
    if sys.argv[1:] not in ([], [os.environ["RANK"]]):
        time.sleep(60)
    raise ValueError("the loss is a banana")


main()
