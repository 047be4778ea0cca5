# Files and transfers (section 9).

from pathlib import Path

from selftest_base import KIB, b64, case, expect_error, pair, upload_head


@case
async def files_are_written_read_listed_and_removed():
    async with pair() as (control, _, _):
        await control.claim()
        write = {"path": "d/e/f.txt", "content": b64(b"hello"), "mode": 0o640}
        await control.fails("not_found", "", "fs.WriteFile", write)
        await control.ok("fs.WriteFile", {**write, "parents": True})
        read = await control.ok("fs.ReadFile", {"path": "d/e/f.txt", "offset": 1, "length": 3})
        assert read == {"content": b64(b"ell"), "size": "5", "mode": 0o640}, read
        found = (await control.ok("fs.Stat", {"path": "d/e"}))["stat"]
        assert found["name"] == "e" and found["type"] == "directory"
        await control.fails("already_exists", "", "fs.MakeDir", {"path": "d"})
        await control.ok("fs.MakeDir", {"path": "d/x/y", "parents": True, "mode": 0o700})
        await control.ok("fs.MakeDir", {"path": "d/x/y", "parents": True})
        first = await control.ok("fs.ListDir", {"path": "d", "limit": 1})
        assert [entry["name"] for entry in first["entries"]] == ["e"] and first["more"]
        rest = await control.ok("fs.ListDir", {"path": "d", "after": "e"})
        assert [entry["name"] for entry in rest["entries"]] == ["x"] and "more" not in rest
        await control.ok("fs.Rename", {"from": "d/e/f.txt", "to": "d/g.txt"})
        await control.fails("already_exists", "", "fs.Rename", {"from": "d/g.txt", "to": "d/x"})
        await control.fails("failed_precondition", "", "fs.Remove", {"path": "d"})
        assert await control.ok("fs.Remove", {"path": "d", "recursive": True}) == {"existed": True}
        assert await control.ok("fs.Remove", {"path": "d"}) == {}


@case
async def paths_and_failures_have_their_codes():
    async with pair("--max-read-bytes", "10") as (control, _, _):
        claimed = await control.claim()
        await control.run("ln -s /etc out; ln -s f in; echo content-of-f > f; mkdir d; mkfifo p")
        for path in ("../x", "/etc/passwd", "out/passwd", "d/../../x"):
            await control.fails("permission_denied", "PATH_ESCAPES", "fs.ReadFile", {"path": path})
        await control.fails("failed_precondition", "IS_LINK", "fs.ReadFile", {"path": "in"})
        write = {"path": "in", "content": b64(b"x")}
        await control.fails("failed_precondition", "IS_LINK", "fs.WriteFile", write)
        link = (await control.ok("fs.Stat", {"path": "in"}))["stat"]
        assert link["type"] == "link" and link["link_target"] == "f"
        await control.fails("not_found", "", "fs.ReadFile", {"path": "nothing"})
        for path in ("d", "f/x", "p"):
            await control.fails("failed_precondition", "", "fs.ReadFile", {"path": path})
        await control.fails("failed_precondition", "", "fs.ListDir", {"path": "f"})
        await control.fails("out_of_range", "TOO_LARGE", "fs.ReadFile", {"path": "f"})
        await control.ok("fs.ReadFile", {"path": "f", "length": 10})
        home = claimed["home"]
        await control.ok("fs.WriteFile", {"path": f"{home}/x", "content": b64(b"x")})
        assert (await control.ok("fs.Remove", {"path": "in"})) == {"existed": True}
        await control.ok("fs.Stat", {"path": "f"})


# -- transfers


@case
async def uploads_follow_credit_and_leave_all_or_nothing():
    async with pair() as (control, _, _):
        await control.claim()
        size = 3_000_000
        done = await control.do("upload", items=[upload_head("big", size)], fill=size)
        assert done["end"]["response"] == {"bytes": str(size), "entries": "1"}
        grants = [event for event in done["meanwhile"] if event["event"] == "credit"]
        assert grants and all(grant["upload"] for grant in grants)
        assert all(64 * KIB <= int(grant["bytes"]) <= 192 * KIB for grant in grants)
        down = await control.do("download", path="big")
        assert down["end"]["length"] == size
        short = await control.do("upload", items=[upload_head("bad", 10)], fill=5)
        expect_error(short["end"], "invalid_argument")
        expect_error((await control.do("upload", items=[]))["end"], "invalid_argument")
        half = {"as": "half", "end": False, "wait": "none"}
        await control.do("upload", items=[upload_head("half", 10)], fill=5, **half)
        expect_error((await control.do("cancel", **{"as": "half"}))["end"], "canceled")
        names = (await control.ok("fs.ListDir", {"path": "."}))["entries"]
        assert [entry["name"] for entry in names] == ["big"], names


@case
async def an_upload_beyond_its_credit_is_refused():
    async with pair() as (control, _, _):
        await control.claim()
        big = 2_000_000
        greedy = {"items": [upload_head("big", big)], "fill": big, "chunk": 200_000}
        done = await control.do("upload", ignore_credit=True, **greedy)
        # All of it may have been consumed in time; if not, that is the only other answer.
        if "error" in done["end"]:
            expect_error(done["end"], "resource_exhausted")
        await control.do("barrier")
        await control.ok("fs.Stat", {"path": "."})


@case
async def directories_and_links_come_back_as_they_went():
    async with pair() as (control, _, _):
        root = (await control.claim())["root"]
        setup = "mkdir -p a/b; echo one > a/1; echo two > a/b/2; ln -s 1 a/l; ln a/1 a/hard"
        await control.run(setup + "; chmod 750 a/1; tar -C a -cf tar --format=pax 1 b l")
        down = await control.do("download", path="a")
        heads = [event["item"] for event in down["meanwhile"] if event["event"] == "item"]
        assert heads[0]["head"]["type"] == "directory", heads[0]
        archive = Path(root, "tar").read_bytes()
        item = {"chunk": b64(archive)}
        dotted = "tar -C a --exclude=./hard -cf dotted --format=pax ."
        await control.run(dotted)
        with_dots = {"chunk": b64(Path(root, "dotted").read_bytes())}
        made = await control.do("upload", items=[upload_head("dots", 0, "directory"), with_dots])
        assert made["end"]["response"] == {"bytes": "8", "entries": "4"}, made["end"]
        made = await control.do("upload", items=[upload_head("new", 0, "directory"), item])
        assert made["end"]["response"] == {"bytes": "8", "entries": "4"}, made["end"]
        _, output = await control.run("cat new/1 new/b/2; readlink new/l; stat -c %a new/1; ls new")
        assert output == "one\ntwo\n1\n750\n1\nb\nl\n", output
        await control.run("echo three > new/3; echo changed > new/1")
        merge = upload_head("new", 0, "directory", merge=True)
        await control.do("upload", items=[merge, item])
        assert (await control.run("cat new/1; ls new"))[1] == "one\n1\n3\nb\nl\n"
        await control.do("upload", items=[upload_head("new", 0, "directory"), item])
        assert (await control.run("ls new"))[1] == "1\nb\nl\n"
        link = {"head": {"path": "ln", "transfer": {"type": "link", "link_target": "a/1"}}}
        await control.do("upload", items=[link])
        down = await control.do("download", path="ln")
        assert down["last"]["head"]["link_target"] == "a/1" and down["items"] == 1


@case
async def archives_that_lead_out_are_refused():
    async with pair() as (control, _, _):
        root = (await control.claim())["root"]
        make = "mkdir s; echo x > s/x; ln -s /tmp s/l; ln s/x s/h; tar -cPf up ../${PWD##*/}/s/x"
        await control.run(make + "; tar -C s -cf hard x h; tar -C s -cf cut x; truncate -s 700 cut")
        await control.run("tar -C s -cf link l; mkdir -p r/l; echo y > r/l/y; tar -C r -rf link l/y")
        for name in ("up", "hard", "cut", "link"):
            item = {"chunk": b64(Path(root, name).read_bytes())}
            done = await control.do("upload", items=[upload_head("t", 0, "directory"), item])
            expect_error(done["end"], "invalid_argument", "BAD_ARCHIVE")
            await control.fails("not_found", "", "fs.Stat", {"path": "t"})
