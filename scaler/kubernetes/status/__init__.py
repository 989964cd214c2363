"""The status of our objects: pure, from pods and from Brain's answers.

job_status    an ElasticJob's status: Brain's conditions, counts of pods
conditions    those that the object and the cluster give
plan_status   a ScalePlan's status, written, and the plan's end as an object
progress      a ScalePlan's request, its phases, and the time at which it goes
happenings    the Events between two statuses of a job
"""
