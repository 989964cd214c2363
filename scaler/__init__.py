"""Starts and stops replicas: ``reconcile`` decides, backends (such as ``local``) act, and ``loop``
connects the two.

The scaler talks to Brain over HTTP, and to agents through the directories of their replicas. It
depends on no internals of Brain or of the agents.
"""
