# Frames that break the rules (section 5).

from selftest_base import KIB, assert_gone, b64, case, expect_error, pair, upload_head


@case
async def bad_frames_are_answered_as_the_table_says():
    async with pair() as (control, _, _):
        await control.claim()
        frame = control.do

        async def silent(**fields):
            done = await frame("frame", **fields)
            barrier = await control.do("barrier")
            strays = [*done["meanwhile"], *barrier["meanwhile"]]
            assert not [event for event in strays if event["event"] == "stray"], strays

        await silent(id="unknown")
        await silent(method="fs.Stat")
        await silent(id="x" * 129, method="fs.Stat")
        await silent(id="unknown", kind=2)
        await silent(id="unknown", kind=3, error="internal: no")
        for kind in (0, 4, 77):
            await silent(id=f"k{kind}", method="fs.Stat", kind=kind)
        await silent(method="/internal/cancel", payload=b64(b"\xff\xff"))
        await silent(method="/internal/credit", payload=b64(b"\xff"))
        for number, (method, payload, code) in enumerate(
            (
                ("m" * 129, b"", "invalid_argument"),
                ("no.Such", b"", "unimplemented"),
                ("fs.Stat", b"\xff\xff", "invalid_argument"),
                ("exec.Start", b"\xff", "invalid_argument"),
                ("fs.Upload", b"\xff", "invalid_argument"),
            )
        ):
            name = f"bad{number}"
            fields = {"id": name, "as": name, "method": method, "payload": b64(payload)}
            expect_error((await frame("frame", **fields))["end"], code)
        big = {"id": "big", "as": "big", "method": "fs.WriteFile", "fill": 3_407_873}
        expect_error((await frame("frame", **big))["end"], "invalid_argument")


@case
async def an_id_in_use_loses_both_calls():
    async with pair() as (control, _, _):
        await control.claim()
        start = {"command": "echo $$; sleep 1000", "wait": "none", "id": "dup", "as": "dup"}
        await control.do("exec", **start)
        await control.do("wait", until="item", count=2, **{"as": "dup"})
        await control.do("frame", id="dup", method="fs.Stat")
        done = await control.do("wait", **{"as": "dup"})
        expect_error(done["end"], "already_exists")
        assert_gone(done["output"].split())
        barrier = await control.do("barrier")
        assert not [event for event in barrier["meanwhile"] if event["event"] == "stray"]


@case
async def items_after_an_early_answer_are_dropped():
    async with pair() as (control, _, _):
        await control.claim()
        head = upload_head("../out", 5)
        upload = {"items": [head], "end": False, "id": "early", "as": "early"}
        expect_error((await control.do("upload", **upload))["end"], "permission_denied")
        await control.do("frame", id="early", fill=100, times=1500)
        await control.do("frame", id="early", method="fs.Upload", fill=100)
        await control.do("frame", id="early")
        # Of an unknown method nobody knows whether it takes items.
        unknown = {"id": "none", "as": "none", "method": "no.Such", "fill": 100}
        expect_error((await control.do("frame", **unknown))["end"], "unimplemented")
        await control.do("frame", id="none", fill=100, times=1500)
        barrier = await control.do("barrier")
        assert not [event for event in barrier["meanwhile"] if event["event"] == "stray"]


@case
async def a_stream_that_is_broken_is_dialled_again():
    async with pair() as (control, _, _):
        await control.do("raw", base64=b64(b"\xff\xff\xff"))
        await control.do("gone")
        await control.do("accept")
        await control.do("raw", fill=4 * KIB * KIB + 1)
        await control.do("gone")
        await control.do("accept")
        await control.do("frame", kind=0, times=1000)
        await control.do("barrier")
        await control.do("frame", kind=0)
        await control.do("gone")
        await control.do("accept")


@case
async def input_that_waits_ends_with_its_program():
    async with pair() as (control, _, _):
        await control.claim()
        start = {"command": "sleep 1000", "exec_id": "hold", "stdin_open": True}
        await control.do("exec", wait="started", **start, **{"as": "hold"})
        feed = {"exec_id": "hold", "input": b64(b"x" * 100_000)}  # more than a pipe takes
        for name in ("first", "second"):
            await control.call("exec.Input", feed, wait="none", **{"as": name})
        await control.do("barrier")
        expect_error((await control.do("cancel", **{"as": "second"}))["end"], "canceled")
        expect_error((await control.do("cancel", **{"as": "hold"}))["end"], "canceled")
        first = await control.do("wait", **{"as": "first"})
        expect_error(first["end"], "failed_precondition")
