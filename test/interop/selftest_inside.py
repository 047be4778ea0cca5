# The reference's own peer and functions, with handlers that do not take what they are given: no worker
# runs. A worker in another language has tests of its own for these rules.

import asyncio

import peer
from selftest_base import KIB, case
from wire import pb, reason_of, split_error


class Harness:
    """A peer whose frames are kept; its handlers wait until they are given up."""

    def __init__(self, credit):
        self.pb = pb
        self.frames = asyncio.Queue()
        self.module = peer
        methods = {
            "up": peer.Method(peer.CLIENT_STREAM, pb.FsUploadItem, self._hang),
            "one": peer.Method(peer.UNARY, pb.FsStatRequest, self._hang),
        }
        self.peer = peer.Peer(self._keep, methods)
        self.peer.credit = credit

    async def _keep(self, data):
        await self.frames.put(self.pb.Envelope.FromString(data))

    @staticmethod
    async def _hang(*_):
        await asyncio.get_running_loop().create_future()

    async def request(self, call_id, method="", payload=b""):
        frame = self.pb.Envelope(id=call_id, method=method, payload=payload, kind=1)
        await self.peer.receive(frame.SerializeToString())

    async def error(self, call_id):
        frame = await self.frames.get()
        assert frame.id == call_id, frame
        return frame.error


async def fill_an_upload(credit, count):
    harness = Harness(credit)
    harness.module.PLAIN_PATIENCE = 0.1
    item = harness.pb.FsUploadItem(chunk=b"x" * (64 * KIB)).SerializeToString()
    await harness.request("up", "up", item)
    for _ in range(count - 1):
        await harness.request("up", "", item)
    return harness


@case
async def items_beyond_the_credit_end_the_call():
    harness = await fill_an_upload(credit=True, count=4)
    assert harness.frames.empty() and harness.peer.calls["up"].verdict is None
    await harness.request("up", "", b"\x12\x00")
    assert (await harness.error("up")).startswith("resource_exhausted: ")
    await harness.peer.close()


@case
async def without_credit_a_call_that_takes_nothing_is_given_up():
    harness = await fill_an_upload(credit=False, count=15)
    assert harness.frames.empty() and harness.peer.calls["up"].verdict is None
    await harness.peer.close()
    harness = await fill_an_upload(credit=False, count=17)
    assert (await harness.error("up")).startswith("resource_exhausted: ")
    await harness.request("x", "no.Such")
    assert (await harness.error("x")).startswith("unimplemented: ")
    await harness.peer.close()


@case
async def frames_that_are_dropped_are_counted_late_ones_are_not():
    harness = Harness(credit=False)
    pb = harness.pb
    for method, payload in (("", b"x"), ("/internal/cancel", b"\xff"), ("/internal/credit", b"")):
        before = harness.peer.dropped
        await harness.request("x", method, payload)
        assert harness.peer.dropped == before + 1, method
    # The id of a cancel is not looked at.
    await harness.request("one", "one")
    cancel = pb.CancelRequest(request_id="one").SerializeToString()
    await harness.request("i" * 200, "/internal/cancel", cancel)
    assert (await harness.error("one")).startswith("canceled: ")
    await harness.request("", "/internal/cancel", cancel)
    await harness.peer.notice("n", pb.CancelRequest())
    used = (await harness.frames.get()).id
    for call_id in (used, "w2"):
        late = pb.Envelope(id=call_id, kind=pb.Envelope.RESPONSE)
        await harness.peer.receive(late.SerializeToString())
    assert harness.peer.dropped == 4, harness.peer.dropped
    await harness.peer.close()


@case
async def codes_and_reasons_are_read_as_they_are_written():
    texts = {
        "aborted: [A] b": ("aborted", "[A] b"), "aborted:b": ("aborted", "b"),
        "aborted:": ("aborted", ""), "aborted": ("unknown", "aborted"),
        "nonsense: b": ("unknown", "nonsense: b"),
    }  # fmt: skip
    for text, read in texts.items():
        assert split_error(text) == read, text
    words = {"[A_1] b": "A_1", "[a] b": "", "[1A] b": "", "A b": "", "[A": "", "[]": ""}
    for text, word in words.items():
        assert reason_of(text) == word, text


@case
async def open_calls_and_their_bytes_are_bounded():
    harness = Harness(credit=True)
    for number in range(1024):
        await harness.request(str(number), "one")
    await harness.request("more", "one")
    assert (await harness.error("more")).startswith("resource_exhausted: ")
    await harness.peer.close()
    harness = Harness(credit=True)
    payload = harness.pb.FsStatRequest(path="x" * (3 << 20)).SerializeToString()
    for number in range(5):
        await harness.request(str(number), "one", payload)
    await harness.request("more", "one", payload)
    assert (await harness.error("more")).startswith("resource_exhausted: ")
    await harness.request("less", "one")
    assert harness.frames.empty() and len(harness.peer.calls) == 6
    await harness.peer.close()
