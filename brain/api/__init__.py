"""The HTTP face: routes, views, problems, auth, events. It imports no maths.

Routes are thin, plain ``def`` and run in FastAPI's thread pool; the core never hears of HTTP.
"""
