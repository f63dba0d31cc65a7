"""Knocks at a server from another host, in every way that must be refused; prints what came back as JSON."""

import json
import socket
import ssl
import sys

import httpx

PATHS = [
    "/",
    "/docs",
    "/health",
    *(f"/v1/control/{call}" for call in ("start-run", "list-nodes", "register-node", "stop-run")),
    *(f"/v1/runtime/{call}" for call in ("acquire-task", "push-messages", "pull-task-input")),
    *(f"/v1/fleet/{call}" for call in ("register-node", "unregister-node")),
    "/v1/fleet/../control/list-nodes",
    "/v1/fleet/%2e%2e/control/list-nodes",
    "//v1/control/list-nodes",
]


def status(client: httpx.Client, method: str, path: str, **options: object) -> str:
    try:
        return str(client.request(method, path, **options).status_code)  # type: ignore[arg-type]
    except httpx.HTTPError as error:
        return type(error).__name__


def main(host: str, port: int, internal: int, ca: str) -> None:
    found: dict[str, str] = {}
    kind = {"content-type": "application/protobuf"}
    trusted = ssl.create_default_context(cafile=ca)
    with httpx.Client(base_url=f"https://{host}:{port}", verify=trusted, timeout=20) as client:
        for path in PATHS:
            found[path] = status(client, "POST", path, content=b"", headers=kind)
        found["without a key"] = status(client, "POST", "/v1/fleet/pull-messages", content=b"", headers=kind)
        found["GET"] = status(client, "GET", "/v1/fleet/pull-messages")
        found["too large"] = status(client, "POST", "/v1/fleet/push-object", content=b"0" * (9 << 20))
        raw = ssl.create_default_context(cafile=ca).wrap_socket(
            socket.create_connection((host, port), timeout=10), server_hostname=host
        )
        raw.sendall(b"POST /v1/fleet/../control/list-nodes HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        found["raw path"] = raw.recv(100).decode().split()[1]
    with httpx.Client(base_url=f"http://{host}:{port}", timeout=20) as client:
        found["plain text"] = status(client, "POST", "/v1/fleet/pull-messages", content=b"", headers=kind)
    with httpx.Client(base_url=f"https://{host}:{port}", timeout=20) as client:
        found["another authority"] = status(client, "POST", "/v1/fleet/pull-messages", content=b"")
    try:
        socket.create_connection((host, internal), timeout=5).close()
        found["internal port"] = "open"
    except OSError as error:
        found["internal port"] = type(error).__name__
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
