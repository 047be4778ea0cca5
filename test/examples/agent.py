"""An agent in Python, with nothing but its standard library, that drives a claimed worker over HTTP.

    CPRG_SERVER=http://127.0.0.1:7300 CPRG_KEY=... python3 agent.py "what is this machine?"

It opens a sandbox on a worker, looks, decides by what it saw, and looks again; what it has found it
writes into a file there, and reads back. A model would stand where decide() does.
"""

import json
import os
import sys
import urllib.error
import urllib.request

SERVER = os.environ.get("CPRG_SERVER", "http://127.0.0.1:7300")
KEY = os.environ["CPRG_KEY"]
STEPS_MAX = 8


def ask(method, path, body=None):
    """One request; what it answers. Problems are raised with what the server says of them."""
    is_json = isinstance(body, dict)
    request = urllib.request.Request(
        SERVER + path,
        method=method,
        data=json.dumps(body).encode() if is_json else body,
        headers={
            "Authorization": "Bearer " + KEY,
            "Content-Type": "application/json" if is_json else "application/octet-stream",
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=90) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        problem = json.load(error)
        raise SystemExit(f"{problem['status']} {problem['code']}: {problem['detail']}") from error


class Sandbox:
    """A sandbox on a worker that has the labels; it ends with the block."""

    def __init__(self, labels):
        self.labels = labels

    def __enter__(self):
        body = {"placement": {"labels": self.labels}, "idle_seconds": 120}
        opened = json.loads(ask("POST", "/v1/sandboxes", body))
        self.path = "/v1/sandboxes/" + opened["sandbox_id"]
        self.worker = opened["worker_id"]
        return self

    def __exit__(self, *_):
        ask("DELETE", self.path)

    def run(self, command):
        """Runs a command to its end; its exit code and output."""
        body = {"argv": ["/bin/sh", "-c", command], "limits": {"wall_seconds": 20}}
        result = json.loads(ask("POST", self.path + "/execs?wait_seconds=60", body))
        if result["reason"] != "exit":
            raise SystemExit(f"{command}: {result['reason']}")
        return result["exit_code"], result["stdout"]

    def write(self, path, text):
        ask("PUT", f"{self.path}/files/{path}", text.encode())

    def read(self, path):
        return ask("GET", f"{self.path}/files/{path}").decode()


def decide(seen):
    """The next command, or None when enough was seen."""
    if not seen:
        return "uname -s"
    _, (code, output) = seen[-1]
    if code != 0:
        return None
    if output.strip() == "Linux":
        return "cat /etc/os-release | grep ^ID="
    if output.startswith("ID="):
        return "test -r /proc/cpuinfo && grep -c ^processor /proc/cpuinfo || exit 3"
    return None


def main():
    seen = []
    with Sandbox({"for": "agents"}) as sandbox:
        for _ in range(STEPS_MAX):
            command = decide(seen)
            if command is None:
                break
            code, output = sandbox.run(command)
            print(f"$ {command}\n{output.strip()}", file=sys.stderr)
            seen.append((command, (code, output)))
        sandbox.write("facts.txt", "".join(output for _, (_, output) in seen))
        # What one program of the sandbox leaves, the next one finds.
        _, lines = sandbox.run("wc -l < facts.txt")
        facts = sandbox.read("facts.txt").splitlines()
    print(
        json.dumps(
            {"steps": len(seen), "facts": facts, "lines": int(lines), "worker": sandbox.worker}
        )
    )


if __name__ == "__main__":
    main()
