"""Pairs nodes for the network check, and judges the measurements. Pure.

    measurements  measurements of a node, the rounds, and the usual times
    terms         options of the check
    speeds        all tries of a node -> its speed, compared with nodes of its kind
    pairing       the rounds so far -> the groups of the next round
    verdicts      the rounds -> nodes that failed or are slow

Each node's arithmetic is timed separately, so two nodes are enough to find the slow one. If a pair
fails, each of its nodes is tested again with a partner that passed. A node that fails again is the
cause, and its first partner is not. Two rounds are enough; a third is needed if more nodes are
suspected than have passed, or if there are three nodes in total.

Times are medians with their standard errors. A node is slow if it takes ``ratio`` times as long as
usual, an excess of ``ratio`` - 1. The threshold is ``CUT`` times that excess, so that noise does
not hide a slow node. The excess must also be at least ``SIGMAS`` standard errors, so that noise
does not make a node slow.
"""
