"""Makes replicas exist, or not. ``reconcile`` decides, backends (``local``) act, ``loop`` connects.

The scaler talks to Brain over HTTP and to agents through their replica directories. It knows the
insides of neither.
"""
