"""``python -m package``."""

from package.inner import tell

tell(__name__, __package__, __spec__ and __spec__.name)
