# One end of the stream: the calls of the other side, and those of this side (sections 4 to 6).
#
# Owns the table of open calls, the order of their frames, credit, cancel, and the answers to frames
# that break the rules. Knows nothing of claims, programs or files: it is given a table of methods.
# It is also given `write`, a coroutine function that takes the bytes of one message and raises
# StreamClosed once the stream has ended.

import asyncio
import logging
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any, Callable

from wire import (
    CANCEL, CREDIT, GRANT_AT, KIB, MAX_GRANT, MAX_ITEM, MAX_NAME, MAX_UNARY,
    START_CREDIT, Failure, cost_of, decode, pb, split_error,
)  # fmt: skip

UNARY, SERVER_STREAM, CLIENT_STREAM = "unary", "server streaming", "client streaming"
REQUEST, RESPONSE, ERROR = pb.Envelope.REQUEST, pb.Envelope.RESPONSE, pb.Envelope.ERROR

MAX_OPEN_CALLS = 1024
MAX_UNFINISHED_BYTES = 16 * KIB * KIB
MAX_DROPPED = 1000
MAX_EARLY = 1024  # ids of calls that were answered early, kept to know their late items
PLAIN_BUFFER = KIB * KIB  # of one call, where there is no credit
PLAIN_PATIENCE = 10.0

log = logging.getLogger("peer")


class StreamClosed(Exception):
    """The stream has ended: nothing can be sent."""


class ProtocolError(Exception):
    """The other side broke the stream itself: it has to be reset."""


async def to_the_end(task):
    """Waits for a task that must not be left half done; a cancel is passed on afterwards."""
    cancelled = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.exception()  # seen
        raise cancelled
    return task.result()


@dataclass(frozen=True)
class Method:
    kind: str
    request: Any  # the class of its request, or of its items
    serve: Callable  # coroutine function of (call, request), or (call) if client streaming


class Call:
    """A call of the other side that is open: until its one end has been sent."""

    def __init__(self, peer, call_id, method, held):
        self.id = call_id
        self.method = method
        self.name = ""
        self.held = held  # bytes of its request
        self.task = None
        self.verdict = None  # a Failure that overrules whatever the handler does
        self._peer = peer
        # Items that come, of a client-streaming call.
        self.inbox = deque()
        self.buffered = 0
        self.items_ended = False
        self.limited = peer.credit
        self._in_credit = START_CREDIT
        self._ungranted = 0
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        # Items that go, of a server-streaming call.
        self._out_credit = START_CREDIT
        self._credited = asyncio.Event()

    def give_up(self, failure):
        """Ends it with that failure once its handler has come to rest. The first one counts."""
        if self.verdict is None:
            self.verdict = failure
            if self.task is not None:
                self.task.cancel()

    # -- items that go

    async def send(self, item):
        payload = item.SerializeToString()
        if not 0 < len(payload) <= MAX_ITEM:
            raise Failure("internal", f"an item of {len(payload)} bytes")
        while self.limited and self._out_credit <= 0:
            self._credited.clear()
            await self._credited.wait()
        self._out_credit -= cost_of(payload)
        await self._peer.frame(self.id, RESPONSE, payload)

    def credited(self, amount):
        self._out_credit += amount
        self._credited.set()

    # -- items that come

    def push(self, item, cost):
        """Takes an item from the stream; false if it is beyond the credit."""
        if self.limited:
            if self._in_credit <= 0:
                return False
            self._in_credit -= cost
        self.inbox.append((item, cost))
        self.buffered += cost
        self._arrived.set()
        return True

    def finish(self):
        self.items_ended = True
        self._arrived.set()

    def full(self):
        return not self.limited and self.buffered > PLAIN_BUFFER and not self.task.done()

    async def half_empty(self):
        while self.buffered > PLAIN_BUFFER // 2 and not self.task.done():
            self._room.clear()
            await self._room.wait()

    def wake(self):
        self._room.set()

    async def items(self):
        """Each item in its order. An item counts as consumed when the next one is asked for."""
        while True:
            while not self.inbox and not self.items_ended:
                self._arrived.clear()
                await self._arrived.wait()
            if not self.inbox:
                return
            item, cost = self.inbox.popleft()
            yield item
            self.buffered -= cost
            self._room.set()
            await self._consumed(cost)

    async def _consumed(self, cost):
        self._ungranted += cost
        if self.limited and self._ungranted >= GRANT_AT and not self.items_ended:
            grant, self._ungranted = self._ungranted, 0
            self._in_credit += grant
            await self._peer.notice(
                CREDIT, pb.CreditRequest(request_id=self.id, bytes=grant, upload=True)
            )


class Peer:
    def __init__(self, write, methods):
        self.credit = False  # set once both lists are known
        self.calls = {}
        self.dropped = 0
        self._write = write
        self._writing = asyncio.Lock()
        self._methods = methods
        self._waiting = {}  # our own unary calls: id -> (future, class of the response)
        self._last_id = 0
        self._serving = set()
        self._early = OrderedDict()
        self._closed = False

    # -- sending

    async def _send(self, envelope, call=None):
        async with self._writing:
            if call is not None:  # its end: the id is free from here on
                self.calls.pop(call.id, None)
            if self._closed:
                raise StreamClosed()
            # Not cut off by a cancel of the call: gRPC would cancel the whole stream with it.
            await to_the_end(asyncio.create_task(self._write(envelope.SerializeToString())))

    async def frame(self, call_id, kind, payload):
        await self._send(pb.Envelope(id=call_id, kind=kind, payload=payload))

    def _next_id(self):
        self._last_id += 1
        return f"w{self._last_id}"

    async def notice(self, method, message):
        payload = message.SerializeToString()
        await self._send(
            pb.Envelope(id=self._next_id(), method=method, kind=REQUEST, payload=payload)
        )

    async def call(self, method, request, response_class, timeout):
        """A unary call of this side."""
        call_id = self._next_id()
        future = asyncio.get_running_loop().create_future()
        self._waiting[call_id] = (future, response_class)
        future.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # seen
        payload = request.SerializeToString()
        try:
            envelope = pb.Envelope(id=call_id, method=method, kind=REQUEST, payload=payload)
            await self._send(envelope)
            return await asyncio.wait_for(future, timeout)
        except asyncio.TimeoutError:
            cancel = pb.CancelRequest(request_id=call_id, reason="deadline exceeded")
            await self.notice(CANCEL, cancel)
            raise Failure("deadline_exceeded", method) from None
        finally:
            self._waiting.pop(call_id, None)

    # -- receiving

    async def receive(self, data):
        """Takes one message from the stream. Waits only where the other side has to be held back."""
        envelope = decode(pb.Envelope, data)
        if envelope is None:
            raise ProtocolError("a message that is no Envelope")
        if envelope.kind == REQUEST:
            await self._on_request(envelope)
        elif envelope.kind in (RESPONSE, ERROR):
            self._on_answer(envelope)
        else:
            self._drop()

    def _drop(self):
        self.dropped += 1
        if self.dropped > MAX_DROPPED:
            raise ProtocolError(f"{self.dropped} frames that break the rules")

    def _on_answer(self, envelope):
        future, response_class = self._waiting.pop(envelope.id, (None, None))
        if future is None:
            if not self._was_ours(envelope.id):
                self._drop()
        elif future.done():
            return
        elif envelope.kind == ERROR:
            future.set_exception(Failure(*split_error(envelope.error)))
        else:
            response = decode(response_class, envelope.payload)
            if response is None:
                future.set_exception(Failure("internal", "a response that is not the method's"))
            else:
                future.set_result(response)

    def _was_ours(self, call_id):
        number = call_id[1:]
        return call_id[:1] == "w" and number.isdecimal() and int(number) <= self._last_id

    async def _on_request(self, envelope):
        if envelope.method in (CANCEL, CREDIT):
            self._on_notice(envelope)
        elif len(envelope.id.encode()) > MAX_NAME:
            self._drop()
        elif not envelope.id:
            self._drop()
        elif envelope.id in self.calls:
            await self._on_further(self.calls[envelope.id], envelope)
        elif self._is_late_item(envelope):
            pass
        elif not envelope.method:
            self._drop()
        else:
            await self._open(envelope)

    def _on_notice(self, envelope):
        message_class = pb.CancelRequest if envelope.method == CANCEL else pb.CreditRequest
        message = decode(message_class, envelope.payload)
        if message is None:
            self._drop()
            return
        call = self.calls.get(message.request_id)
        if envelope.method == CANCEL:
            if call is not None:
                call.give_up(Failure("canceled", message.reason or "cancelled by the caller"))
        elif not self.credit or not 0 < message.bytes <= MAX_GRANT:
            self._drop()
        elif call is not None and not message.upload:
            call.credited(message.bytes)

    def _is_late_item(self, envelope):
        """Whether it belongs to a call that was answered before the end of its items."""
        method = self._early.get(envelope.id)
        if method is None or envelope.method not in ("", method):
            return False
        if not envelope.payload:
            del self._early[envelope.id]
        return True

    async def _on_further(self, call, envelope):
        takes_items = call.method.kind == CLIENT_STREAM and not call.items_ended
        if not takes_items or envelope.method not in ("", call.name):
            call.give_up(Failure("already_exists", f"the id {call.id} is in use"))
        elif call.verdict is None:
            self._take_item(call, envelope.payload)
            if call.full():
                await self._hold_back(call)

    def _take_item(self, call, payload):
        if not payload:
            call.finish()
            return
        item = decode(call.method.request, payload) if len(payload) <= MAX_ITEM else None
        if item is None:
            call.give_up(Failure("invalid_argument", f"not an item of {call.name}"))
        elif not call.push(item, cost_of(payload)):
            call.give_up(Failure("resource_exhausted", "an item beyond the credit"))

    async def _hold_back(self, call):
        """Section 6, without credit: reads no further until half of the call is consumed."""
        try:
            await asyncio.wait_for(call.half_empty(), PLAIN_PATIENCE)
        except asyncio.TimeoutError:
            call.give_up(Failure("resource_exhausted", "its items are not taken"))

    # -- serving

    async def _open(self, envelope):
        failure = self._objection(envelope)
        if failure is None:
            call = self._start(envelope)
            if call is not None:
                return
            failure = Failure("invalid_argument", f"not a request of {envelope.method}")
        method = self._methods.get(envelope.method)
        if method is None:  # perhaps it takes items
            self._remember_early(envelope.id, "")
        elif method.kind == CLIENT_STREAM:
            self._remember_early(envelope.id, envelope.method)
        # Answered by the reader itself: whoever sends such calls faster than it reads waits.
        await self._send(pb.Envelope(id=envelope.id, kind=ERROR, error=failure.text()))

    def _objection(self, envelope):
        method = self._methods.get(envelope.method)
        if len(envelope.method.encode()) > MAX_NAME:
            return Failure("invalid_argument", "the name of the method is too long")
        if method is None:
            return Failure("unimplemented", f"no method {envelope.method}")
        has_items = method.kind == CLIENT_STREAM  # which have bounds of their own
        if len(envelope.payload) > (MAX_ITEM if has_items else MAX_UNARY):
            return Failure("invalid_argument", f"a payload of {len(envelope.payload)} bytes")
        held = 0 if has_items else len(envelope.payload)
        held += sum(call.held for call in self.calls.values())
        if len(self.calls) >= MAX_OPEN_CALLS or held > MAX_UNFINISHED_BYTES and not has_items:
            return Failure("resource_exhausted", "too many calls are open")
        return None

    def _start(self, envelope):
        method = self._methods[envelope.method]
        request = decode(method.request, envelope.payload)
        if request is None:
            return None
        held = 0 if method.kind == CLIENT_STREAM else len(envelope.payload)
        call = Call(self, envelope.id, method, held)
        call.name = envelope.method
        if method.kind == CLIENT_STREAM:
            self._take_item(call, envelope.payload)
            work = method.serve(call)
        else:
            work = method.serve(call, request)
        self.calls[call.id] = call
        call.task = asyncio.create_task(work)
        if call.verdict is not None:
            call.task.cancel()
        serving = asyncio.create_task(self._finish(call))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)
        return call

    async def _finish(self, call):
        """Waits for the handler to come to rest, however it does, and then sends the one end."""
        await asyncio.wait({call.task})
        call.wake()
        end = self._end_of(call)
        if call.method.kind == CLIENT_STREAM and not call.items_ended:
            self._remember_early(call.id, call.name)
        try:
            await self._send(end, call)
        except StreamClosed:
            self.calls.pop(call.id, None)

    def _end_of(self, call):
        failure = call.verdict or self._failure_of(call.task)
        if failure is not None:
            return pb.Envelope(id=call.id, kind=ERROR, error=failure.text())
        response = call.task.result()
        payload = b"" if response is None else response.SerializeToString()
        return pb.Envelope(id=call.id, kind=RESPONSE, payload=payload)

    def _failure_of(self, task):
        if task.cancelled():
            return Failure("canceled", "given up")
        error = task.exception()
        if error is None or isinstance(error, Failure):
            return error
        if not isinstance(error, StreamClosed):
            log.error("a handler failed", exc_info=error)
        return Failure("internal", f"{type(error).__name__}: {error}")

    def _remember_early(self, call_id, method):
        self._early[call_id] = method
        while len(self._early) > MAX_EARLY:
            self._early.popitem(last=False)

    # -- ending

    async def settled(self):
        """Waits until every open call has had its end."""
        while self._serving:
            await asyncio.wait(set(self._serving))

    async def close(self):
        """The stream has ended: all calls end with it."""
        self._closed = True
        for future, _ in list(self._waiting.values()):
            if not future.done():
                future.set_exception(Failure("unavailable", "the stream has ended"))
        for call in list(self.calls.values()):
            call.give_up(Failure("unavailable", "the stream has ended"))
        await self.settled()
