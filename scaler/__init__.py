"""Makes replicas exist, or not. ``reconcile`` decides, backends (``local``) act, ``loop`` connects.

Talks to Brain over HTTP and to agents through their replica directories; knows neither's insides.
"""
