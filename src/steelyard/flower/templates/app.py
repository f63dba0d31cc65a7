"""The same federation for Flower's own commands: `flwr run .`, with `site=NAME` in each node's config."""

from pathlib import Path

from steelyard.flower import client_app, server_app

HERE = Path(__file__).parent
server = server_app(HERE)
client = client_app(HERE, "site_data:load")
