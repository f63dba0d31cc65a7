"""The reverse proxy in front of the SuperLink: nginx, which lets sites through and nothing else.

Flower's control and runtime calls share the SuperLink's port and need no credentials: any program that
reaches them can submit a run. So the SuperLink listens on loopback only, and the proxy passes on the calls
of sites.
"""

import shutil
import signal
from pathlib import Path

from steelyard.flower import credentials
from steelyard.flower.processes import Child

CONFIG = "nginx.conf"
MAX_BODY = "8m"
"""Flower cuts messages into pieces of 5 MiB; larger requests are refused. They are held in memory: nginx's
workers may have no right to write into the server's folder."""

_CONFIG = """# Written by steelyard. Only what sites call is passed on; everything else is refused.
worker_processes 1;
pid {folder}/nginx.pid;
error_log {logs}/proxy-errors.log warn;
events {{ worker_connections 1024; }}
http {{
    log_format sites '$time_iso8601 $remote_addr "$request" $status $request_length';
    access_log {logs}/proxy.log sites;
    client_body_temp_path {folder}/tmp-body;
    proxy_temp_path {folder}/tmp-proxy;
    fastcgi_temp_path {folder}/tmp;
    uwsgi_temp_path {folder}/tmp;
    scgi_temp_path {folder}/tmp;
    server_tokens off;
    limit_conn_zone $binary_remote_addr zone=sites:1m;
    upstream superlink {{ server 127.0.0.1:{internal}; keepalive 16; }}
    server {{
        listen {port} ssl;
        listen [::]:{port} ssl;
        ssl_certificate {folder}/{certificate};
        ssl_certificate_key {folder}/{key};
        ssl_protocols TLSv1.2 TLSv1.3;
        client_max_body_size {body};
        client_body_buffer_size {body};
        client_body_timeout 60s;
        limit_conn sites 64;
        location = /v1/fleet/register-node {{ return 403; }}
        location = /v1/fleet/unregister-node {{ return 403; }}
        location /v1/fleet/ {{
            limit_except POST {{ deny all; }}
            proxy_pass https://superlink;
            proxy_ssl_trusted_certificate {folder}/{ca};
            proxy_ssl_verify on;
            proxy_ssl_name localhost;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_read_timeout 120s;
            proxy_max_temp_file_size 0;
        }}
        location / {{ return 403; }}
    }}
}}
"""


def write_config(secrets: Path, logs: Path, port: int, internal: int) -> Path:
    """Write nginx's configuration beside the server's credentials."""
    names = {"certificate": credentials.SERVER, "key": credentials.SERVER_KEY, "ca": credentials.CA}
    path = secrets / CONFIG
    text = _CONFIG.format(folder=secrets, logs=logs, port=port, internal=internal, body=MAX_BODY, **names)
    path.write_text(text, "utf-8")
    return path


def proxy(secrets: Path, logs: Path, port: int, internal: int) -> Child | None:
    """nginx with that configuration; None if it is not installed."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        return None
    config = write_config(secrets, logs, port, internal)
    logs.mkdir(parents=True, exist_ok=True)
    command: list[str | Path] = [program, "-c", config, "-p", secrets, "-g", "daemon off;"]
    return Child("proxy", command, logs / "proxy-output.log", end=signal.SIGTERM)
