"""The HTTP API: routes, views, errors, authentication, event streams. It imports no models.

Routes are thin, plain ``def`` and run in FastAPI's thread pool; the core never hears of HTTP.
"""
