"""Remote sites: the same federation across machines, over Flower."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steelyard.flower.apps import client_app, server_app
    from steelyard.flower.joining import join
    from steelyard.flower.serving import serve

_HOMES = {"client_app": "apps", "join": "joining", "serve": "serving", "server_app": "apps"}
__all__ = ["client_app", "join", "serve", "server_app"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'steelyard.flower' has no attribute {name!r}")
    try:
        import flwr  # noqa: F401
    except ImportError:
        from steelyard.errors import InputError

        raise InputError("Flower is not installed: pip install 'steelyard[flower]'.") from None
    return getattr(importlib.import_module(f"steelyard.flower.{_HOMES[name]}"), name)
