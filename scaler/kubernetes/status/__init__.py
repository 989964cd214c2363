"""Builds the status of Brain's objects from pods and Brain's answers. Pure.

job_status    an ElasticJob's status: Brain's conditions, counts of pods
conditions    conditions that the object and the cluster imply
plan_status   writes a ScalePlan's status, and deletes a ScalePlan that need not be kept
progress      a ScalePlan's request, its phases, and the time of its deletion
happenings    the Events between two statuses of a job
"""
