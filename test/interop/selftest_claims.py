# Claims, their end, drain and heartbeats (section 8).

import os
import signal

from selftest_base import case, pair, upload_head


@case
async def claims_follow_the_table_of_refusals():
    async with pair() as (control, _, _):
        await control.fails("failed_precondition", "NOT_CLAIMED", "fs.Stat", {"path": "."})
        await control.fails("invalid_argument", "", "worker.Claim", {"task_id": "a/b", "epoch": 1})
        await control.fails("invalid_argument", "", "worker.Claim", {"task_id": "t1"})
        claimed = await control.claim(epoch=5, env={"A": "1"})
        assert claimed["root"].startswith("/") and claimed["home"].startswith("/")
        assert claimed["os"] == "linux" and claimed["arch"] in ("x86_64", "aarch64")
        for epoch in (4, 5):
            request = {"task_id": "t1", "epoch": epoch}
            await control.fails("already_exists", "ALREADY_CLAIMED", "worker.Claim", request)
        other = {"task_id": "t2", "epoch": 1}
        await control.fails("already_exists", "ALREADY_CLAIMED", "worker.Claim", other)
        for claim, code, reason in (
            ({"task_id": "t1", "epoch": 4}, "aborted", "STALE_EPOCH"),
            ({"task_id": "t1", "epoch": 6}, "aborted", "STALE_EPOCH"),
            ({"task_id": "t2", "epoch": 5}, "failed_precondition", "NOT_CLAIMED"),
        ):
            await control.fails(code, reason, "fs.Stat", {"path": ".", "claim": claim})
        await control.ok("fs.Stat", {"path": ".", "claim": {"task_id": "t1", "epoch": 5}})
        await control.ok("fs.Stat", {"path": "."})


@case
async def a_higher_epoch_takes_the_claim():
    async with pair() as (control, _, _):
        old = await control.claim(epoch=5)
        await control.do("exec", command="sleep 1000", wait="started", **{"as": "old"})
        new = await control.claim(epoch=6)
        assert old["root"] != new["root"]
        ended = (await control.do("wait", **{"as": "old"}))["last"]["exit"]
        assert ended["signal"] == "SIGKILL", ended
        stale = {"claim": {"task_id": "t1", "epoch": 5}}
        await control.fails("aborted", "STALE_EPOCH", "worker.Release", stale)
        await control.ok("worker.Release", {"claim": {"task_id": "t1", "epoch": 6}})
        await control.ok("worker.Release", {"claim": {"task_id": "t1", "epoch": 6}})


@case
async def release_kills_and_forgets():
    async with pair() as (control, _, _):
        root = (await control.claim(env={"SECRET": "1"}))["root"]
        await control.do("exec", command="sleep 1000", wait="started", **{"as": "running"})
        released = await control.ok("worker.Release", {"claim": {"task_id": "t1", "epoch": 1}})
        assert released == {"killed": 1}, released
        assert not os.path.exists(root)
        await control.fails("failed_precondition", "NOT_CLAIMED", "fs.Stat", {"path": "."})
        await control.claim(task="t2")
        assert (await control.run("echo ${SECRET-gone}"))[1] == "gone\n"


@case
async def slots_hold_several_claims():
    async with pair("--slots", "2") as (control, _, _):
        await control.claim("t1")
        await control.claim("t2")
        await control.fails("failed_precondition", "NOT_CLAIMED", "fs.Stat", {"path": "."})
        third = {"task_id": "t3", "epoch": 1}
        await control.fails("already_exists", "ALREADY_CLAIMED", "worker.Claim", third)
        beat = await control.do("heartbeat", holds="t2")
        assert sorted(beat["holding"]) == ["t1", "t2"]


@case
async def a_clone_that_fails_holds_nothing():
    async with pair() as (control, _, _):
        request = {"task_id": "t1", "epoch": 1, "repo_url": "https://127.0.0.1:1/x.git"}
        await control.fails("failed_precondition", "CLONE_FAILED", "worker.Claim", request)
        request["repo_url"] = "file:///etc"
        await control.fails("invalid_argument", "", "worker.Claim", request)
        await control.claim()


@case
async def drain_finishes_and_exits_0():
    async with pair() as (control, process, _):
        await control.claim()
        drained = await control.ok("worker.Drain")
        assert drained["claims"] == [{"task_id": "t1", "epoch": "1"}]
        request = {"task_id": "t2", "epoch": 1}
        await control.fails("unavailable", "DRAINING", "worker.Claim", request)
        assert (await control.run("echo still"))[1] == "still\n"
        await control.ok("worker.Release", {"claim": {"task_id": "t1", "epoch": 1}})
        assert (await control.do("gone"))["by"] in ("half-closed", "closed")
        assert await process.code() == 0


@case
async def sigterm_drains_and_a_second_one_kills():
    async with pair() as (control, process, _):
        await control.do("heartbeat")
        process.process.send_signal(signal.SIGTERM)
        assert await process.code() == 0
    async with pair() as (control, process, _):
        root = (await control.claim())["root"]
        await control.do("exec", command="sleep 1000", wait="started")
        process.process.send_signal(signal.SIGTERM)
        # A barrier proves that it still serves; only then may the second signal come.
        await control.do("barrier")
        request = {"task_id": "t2", "epoch": 1}
        for _ in range(100):  # until the first signal has arrived
            end = await control.call("worker.Claim", request)
            if "DRAINING" in end["error"]:
                break
        process.process.send_signal(signal.SIGTERM)
        assert await process.code() == 1
        assert not os.path.exists(root)


@case
async def once_exits_after_its_first_claim():
    async with pair("--once") as (control, process, _):
        await control.claim()
        await control.ok("worker.Release", {"claim": {"task_id": "t1", "epoch": 1}})
        assert await process.code() == 0


@case
async def the_loss_of_a_stream_ends_its_claims():
    async with pair() as (control, _, _):
        root = (await control.claim())["root"]
        await control.do("exec", command="sleep 1000", wait="started")
        await control.do("close", code="unavailable", message="[SHUTDOWN] later")
        await control.do("accept")
        assert not os.path.exists(root)
        await control.claim()


# -- heartbeats


@case
async def heartbeats_that_are_answered_keep_a_claim():
    async with pair() as (control, _, _):
        await control.claim(claim_ttl_seconds=2)
        await control.do("heartbeat", holds="t1", count=4, timeout=20)
        await control.ok("fs.Stat", {"path": "."})


@case
async def heartbeats_that_are_not_answered_end_a_claim():
    # The stream would be reset after 10 s of silence.
    async with pair(heartbeat_seconds=4) as (control, _, _):
        await control.claim(claim_ttl_seconds=5)
        await control.do("exec", command="sleep 1000", wait="started", **{"as": "run"})
        await control.do("config", answer_heartbeats=False)
        ended = await control.do("wait", timeout=20, **{"as": "run"})
        assert ended["last"]["exit"]["signal"] == "SIGKILL"
        await control.do("config", answer_heartbeats=True)
        await control.do("heartbeat")
        claim = {"claim": {"task_id": "t1", "epoch": 1}, "path": "."}
        await control.fails("failed_precondition", "NOT_CLAIMED", "fs.Stat", claim)


@case
async def a_control_plane_that_says_nothing_is_left():
    async with pair(answer_heartbeats=False) as (control, _, _):
        await control.do("gone")
        await control.do("accept")
    # Where heartbeats are not answered nothing has to come.
    async with pair(methods=[]) as (control, _, _):
        await control.do("heartbeat", count=4)


@case
async def a_dropped_claim_ends_at_once():
    async with pair() as (control, _, _):
        await control.claim()
        await control.do("exec", command="sleep 1000", wait="started", **{"as": "run"})
        await control.do("config", renew=[], drop=[{"task_id": "t1", "epoch": 1}])
        ended = await control.do("wait", **{"as": "run"})
        assert ended["last"]["exit"]["signal"] == "SIGKILL"
        assert ended["last"]["exit"]["reason"] == "interrupted"


@case
async def a_plain_peer_gets_notices_and_may_keep_its_headers_back():
    config = {"methods": [], "bare_headers": True, "late_headers": True}
    async with pair(**config) as (control, _, _):
        beat = await control.do("heartbeat", count=1)
        assert beat["holding"] == []
        await control.claim(claim_ttl_seconds=1)
        assert (await control.run("echo plain"))[1] == "plain\n"
        big = await control.do("exec", command="head -c 3000000 /dev/zero")
        assert big["end"]["length"] == 3_000_000 and not big["last"]["exit"].get("signal")
        assert not [event for event in big["meanwhile"] if event["event"] == "credit"]
        await control.do("upload", items=[upload_head("big", 2 << 20)], fill=2 << 20)
        assert (await control.ok("fs.Stat", {"path": "big"}))["stat"]["size"] == str(2 << 20)


@case
async def a_plain_worker_lists_nothing_and_serves_all_the_same():
    async with pair("--plain") as (control, _, metadata):
        assert not metadata.get("x-worker-methods") and "x-worker-secret" not in metadata
        await control.do("heartbeat")
        await control.claim()
        big = await control.do("exec", command="head -c 1000000 /dev/zero")
        assert big["end"]["length"] == 1_000_000
        await control.do("close", code="unavailable", message="[SHUTDOWN] later")
        await control.do("accept")
