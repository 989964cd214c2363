"""The parts of ``launcher.workers``.

    making        one worker is made
    environment   what it finds in its environment
    nursery       it is forked from a process that has imported what it needs
    process       a worker that runs, and the small things that processes need
    control       the file that it and its agent share
    output        where what it prints goes
    sessions      the lines to those that can go over into another world
    values        what they are asked, announce, and end as
    stopping      they end, with everything that they started
    evidence      what this machine says of an end
    failures      what their error files say
    leash         nothing outlives its agent

``leash`` is also a program of its own, run by path: it may import nothing but the standard
library.
"""
