"""A worker beside modules that have the names of others."""

import json
import os
import platform  # a directory without a module in it comes after the standard library's
import queue
import socket
import statistics
import textwrap

for module in (json, queue, socket, statistics, textwrap, platform):
    os.write(1, f"{module.__name__} {getattr(module, 'found', 'standard')}\n".encode())
