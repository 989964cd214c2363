"""Starts and stops replicas. ``reconcile`` decides, backends (``local``) act, ``loop`` connects
them.

The scaler talks to Brain over HTTP and to agents through their replica directories. It knows the
internals of neither.
"""
