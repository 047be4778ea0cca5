"""An agent in Python, with nothing but its standard library, that drives workers over HTTP.

    CPRG_SERVER=http://127.0.0.1:7300 CPRG_KEY=... python3 agent.py "what is this machine?"

It looks, decides by what it saw, and looks again: each step is a task on a claimed worker. A model
would stand where decide() does.
"""

import json
import os
import sys
import urllib.request

SERVER = os.environ.get("CPRG_SERVER", "http://127.0.0.1:7300")
KEY = os.environ["CPRG_KEY"]
STEPS_MAX = 8


def ask(method, path, body=None):
    """One request; the answer's JSON. Problems are raised with what the server says of them."""
    request = urllib.request.Request(
        SERVER + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": "Bearer " + KEY, "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=90) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        problem = json.load(error)
        raise SystemExit(f"{problem['status']} {problem['code']}: {problem['detail']}") from error


def run(command):
    """Runs a command on a worker that has the labels; its exit code and output."""
    body = {
        "runner": "shell",
        "input": {"commands": [command], "keep_going": True},
        "labels": {"for": "agents"},
    }
    task = ask("POST", "/v1/tasks", body)
    if "waiting" in task:
        print("waits:", task["waiting"]["detail"], file=sys.stderr)
    while task["finished_at"] is None:
        task = ask("GET", f"/v1/tasks/{task['task_id']}?wait_seconds=60")
    if task["status"] != "succeeded":
        raise SystemExit(f"the task {task['status']}: {task['error']}")
    [result] = task["result"]["commands"]
    return result["exit_code"], result["stdout"], task["worker_id"]


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
    workers = set()
    for _ in range(STEPS_MAX):
        command = decide(seen)
        if command is None:
            break
        code, output, worker = run(command)
        workers.add(worker)
        print(f"$ {command}\n{output.strip()}", file=sys.stderr)
        seen.append((command, (code, output)))
    facts = [output.strip() for _, (_, output) in seen]
    print(json.dumps({"steps": len(seen), "facts": facts, "workers": sorted(workers)}))


if __name__ == "__main__":
    main()
