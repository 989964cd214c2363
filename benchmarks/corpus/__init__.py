"""Training programs that nobody wrote for us, under torchrun and under brain-run.

``programs`` lists them, ``environments`` installs what they need, ``runs`` runs one of them once,
``comparing`` says what differs, and ``__main__`` publishes it.
"""
