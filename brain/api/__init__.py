"""The HTTP API: routes, views, errors, authentication, event streams. It imports no models.

Routes are thin. Most are plain ``def`` functions, which FastAPI runs in its thread pool. The core
does not depend on HTTP.
"""
