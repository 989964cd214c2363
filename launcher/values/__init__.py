"""Values and pure rules that the launcher's rooms share, and the files that several rooms read.

config          how a job's workers are launched, and the document of a world
observation     a coordinator's observations, its rules and the actions it may take
workers         requests to workers, their announcements, their progress and their ends
replica         the files of a replica's directory: intent, place, lock, end
witness         what is known of a world's witness
network_check   rounds of the network check, and its verdicts
diagnosis       the first failure of a world, its kind, and its consequence
hang            rules for worlds that stand still
ram_checkpoint  where steps lie in shared memory
console         an agent's lines on standard error
"""
