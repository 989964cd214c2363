"""One replica as a pod: pure functions from what is wished to manifests, and back from sight.

Nothing here talks to anybody. ``manifest`` is the way there, ``sight`` the way back.
"""
