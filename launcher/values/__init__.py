"""Values and pure rules that the launcher's packages share, and files that several packages read.

config          how a job's workers are launched, and the document of a world
observation     a coordinator's observations and its rules
action          the actions that a coordinator may take
workers         requests to workers, their announcements, their progress and their ends
replica         the files of a replica's directory: intent, place, lock, end
witness         an agent's knowledge of a world's witness
network_check   rounds of the network check, and its verdicts
diagnosis       the first failure of a world, its kind, and its consequence
hang            rules for worlds that stand still
ram_checkpoint  paths of steps in shared memory
console         an agent's lines on standard error
"""
