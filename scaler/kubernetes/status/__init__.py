"""Builds the status of ElasticJobs and ScalePlans from pods and Brain's answers.

job_status    an ElasticJob's status: Brain's conditions, counts of pods
conditions    conditions that the object and the cluster imply
plan_status   writes a ScalePlan's status, and deletes a ScalePlan that need not be kept
progress      pure functions for a ScalePlan's phases, conditions and deletion
happenings    the Events between two statuses of a job
"""
