# Programs (section 9): output, input, signals, limits, and that nothing of one is left.

import base64

from selftest_base import KIB, assert_gone, b64, case, expect_error, pair


@case
async def a_program_gives_its_output_and_its_exit():
    async with pair() as (control, _, _):
        root = (await control.claim(env={"A": "claim", "B": "claim"}))["root"]
        command = "pwd; echo $A $B; echo oops >&2; exit 3"
        done = await control.do("exec", command=command, env={"B": "exec"}, exec_id="e1")
        items = [event["item"] for event in done["meanwhile"] if event["event"] == "item"]
        assert items[0]["started"]["exec_id"] == "e1" and items[0]["started"]["pid"] > 0
        assert [int(item["seq"]) for item in items] == list(range(1, len(items) + 1))
        assert done["output"] == f"{root}\nclaim exec\n"
        errors = [base64.b64decode(item["stderr"]) for item in items if "stderr" in item]
        assert b"".join(errors) == b"oops\n"
        exit_item = done["last"]["exit"]
        assert exit_item["exit_code"] == 3 and exit_item["reason"] == "exit"
        assert exit_item["stderr_bytes"] == "5"
        again = {"command": "true", "exec_id": "e1"}
        expect_error((await control.do("exec", **again))["end"], "already_exists")


@case
async def programs_that_cannot_or_must_not_run():
    async with pair() as (control, _, _):
        await control.claim()
        for bad in ({}, {"command": "true", "argv": ["true"]}, {"command": "x", "exec_id": "a/b"}):
            expect_error((await control.do("exec", **bad))["end"], "invalid_argument")
        never = (await control.do("exec", argv=["/does/not/exist"]))["last"]
        assert never["seq"] == "1" and never["exit"]["reason"] == "setup_failed"
        assert never["exit"]["message"] and "exit_code" not in never["exit"]
        outside = (await control.do("exec", command="true", cwd="../.."))["end"]
        expect_error(outside, "permission_denied", "PATH_ESCAPES")


@case
async def a_program_gets_input():
    async with pair() as (control, _, _):
        await control.claim()
        _, output = await control.run("cat; echo end", stdin=b64(b"first "))
        assert output == "first end\n"
        start = {"command": "cat", "stdin": b64(b"ab"), "stdin_open": True, "exec_id": "e"}
        await control.do("exec", wait="started", **start, **{"as": "cat"})
        await control.do("wait", until="output", contains="ab", **{"as": "cat"})
        feed = {"exec_id": "e", "input": b64(b"bcd"), "offset": 1}
        assert await control.ok("exec.Input", feed) == {"taken_bytes": "4"}
        beyond = {"exec_id": "e", "input": b64(b"x"), "offset": 9}
        await control.fails("out_of_range", "", "exec.Input", beyond)
        await control.fails("not_found", "", "exec.Input", {"exec_id": "nobody"})
        last = {"exec_id": "e", "input": b64(b"!"), "close": True}
        assert await control.ok("exec.Input", last) == {"taken_bytes": "5"}
        done = await control.do("wait", **{"as": "cat"})
        assert done["output"] == "abcd!", done["output"]
        await control.fails("failed_precondition", "", "exec.Input", last)


@case
async def a_program_gets_signals_and_its_time():
    async with pair() as (control, _, _):
        await control.claim()
        trap = "trap 'echo got; exit 7' USR1; echo ready; while :; do sleep 0.05; done"
        await control.do("exec", command=trap, exec_id="s", wait="none", **{"as": "run"})
        await control.do("wait", until="output", contains="ready", **{"as": "run"})
        await control.fails("invalid_argument", "", "exec.Signal", {"exec_id": "s", "signal": "X"})
        await control.ok("exec.Signal", {"exec_id": "s", "signal": "SIGUSR1"})
        done = await control.do("wait", **{"as": "run"})
        assert done["output"] == "ready\ngot\n" and done["last"]["exit"]["exit_code"] == 7
        await control.ok("exec.Signal", {"exec_id": "s", "signal": "SIGTERM"})
        killed, _ = await control.run("kill -9 $$")
        assert killed["signal"] == "SIGKILL" and killed["reason"] == "signal"
        late, _ = await control.run("sleep 1000 | sleep 1000", timeout_ms=200)
        assert late["reason"] == "wall_limit" and "exit_code" not in late


@case
async def what_outlives_a_program_is_killed():
    async with pair() as (control, _, _):
        await control.claim()
        # The second one says so itself once it has left the session.
        command = """
            sleep 1000 & echo $!
            mkfifo p; setsid sh -c 'echo $$ > p; exec sleep 1000' & read pid < p; echo $pid
        """
        exit_item, output = await control.run(command)
        assert exit_item["exit_code"] == 0 and exit_item["killed"] == 2, exit_item
        assert_gone(output.split())


@case
async def cancel_kills_the_descendants_and_then_answers():
    async with pair() as (control, _, _):
        await control.claim()
        command = "sleep 1000 & echo $!; (sleep 1000; true) & echo $!; echo $$; wait"
        await control.do("exec", command=command, wait="none", **{"as": "run"})
        await control.do("wait", until="item", count=2, **{"as": "run"})
        done = await control.do("cancel", reason="enough", **{"as": "run"})
        expect_error(done["end"], "canceled")
        assert "exit" not in done["last"]
        assert_gone(done["output"].split())
        await control.do("cancel", **{"as": "run"})  # its end has crossed this one
        assert (await control.run("echo usable"))[1] == "usable\n"


@case
async def only_the_last_output_is_retained():
    async with pair() as (control, _, _):
        await control.claim()
        done = await control.do("exec", command="seq 1 100000", retain_bytes=100)
        assert len(done["output"]) == 100 and done["output"].endswith("99999\n100000\n")
        assert done["last"]["exit"]["stdout_bytes"] == "588895"


@case
async def credit_holds_a_program_back():
    async with pair(grant=False) as (control, _, _):
        await control.claim()
        run = {"as": "run"}
        await control.do("exec", command="head -c 1000000 /dev/zero", wait="none", **run)
        full = 256 * KIB
        await control.do("wait", until="bytes", count=full, **run)
        await control.do("barrier")
        state = await control.do("wait", until="item", **run)
        assert full <= state["bytes"] <= full + 64 * KIB + 128, state["bytes"]
        assert state["end"] is None
        # Other calls are not held back.
        await control.ok("fs.Stat", {"path": "."})
        await control.do("grant", bytes=1, **run)
        await control.do("grant", bytes=2_000_000, **run)
        done = await control.do("wait", **run)
        assert done["end"]["length"] == 1_000_000


@case
async def cancel_reaches_a_program_that_waits_for_credit():
    async with pair(grant=False) as (control, _, _):
        await control.claim()
        await control.do("exec", command="cat /dev/zero", wait="none", **{"as": "run"})
        await control.do("wait", until="item", count=4, **{"as": "run"})
        expect_error((await control.do("cancel", **{"as": "run"}))["end"], "canceled")
        await control.ok("worker.Release", {"claim": {"task_id": "t1", "epoch": 1}})
