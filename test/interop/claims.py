# Claims: which tasks hold this worker, at which epoch, until when (section 8).
#
# Owns the table of refusals, the folders and the environment of a claim, its ttl, and its end: its
# programs are killed, its other calls refused, its folders removed, and only then is the slot free.

import asyncio
import os
import platform
import re
import shutil
import tempfile

from peer import to_the_end
from wire import KIB, Failure, pb

TASK_ID = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")
MAX_EPOCH = 2**53 - 1
MAX_ENV_NAMES = 256
MAX_ENV_BYTES = 64 * KIB
CLONE_SECONDS = 600


def check_env(env):
    size = sum(len(name.encode()) + len(value.encode()) for name, value in env.items())
    if len(env) > MAX_ENV_NAMES or size > MAX_ENV_BYTES:
        raise Failure("invalid_argument", "the environment is too large")
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise Failure("invalid_argument", f"no variable of an environment: {name!r}")
    return dict(env)


def not_claimed(message):
    return Failure("failed_precondition", message, "NOT_CLAIMED")


class Claim:
    def __init__(self, request):
        self.task_id = request.task_id
        self.epoch = request.epoch
        self.env = check_env(request.env)
        self.ttl = request.claim_ttl_seconds
        self.folder = None
        self.root = None
        self.home = None
        self.usable = False
        self.ending = None
        self.maker = None  # the call that makes it, until it is usable
        self.execs = {}
        self.calls = set()  # its open calls that are no execs
        self._expiry = None

    def message(self):
        return pb.Claim(task_id=self.task_id, epoch=self.epoch)

    def make_folders(self):
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix="outrigger-claim-"))
        self.root = os.path.join(self.folder, "root")
        self.home = os.path.join(self.folder, "home")
        os.mkdir(self.root)
        os.mkdir(self.home)

    def renew(self, sent_at, expire):
        """Lets it live for its ttl, counted from `sent_at` on the clock of the loop."""
        self.forget_expiry()
        if self.ttl:
            loop = asyncio.get_running_loop()
            self._expiry = loop.call_at(sent_at + self.ttl, expire, self)

    def forget_expiry(self):
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None


class ClaimTable:
    def __init__(self, slots, on_end):
        self.slots = slots
        self.draining = False
        self.counts_ttl = False  # whether heartbeats are answered
        self._held = {}
        self._on_end = on_end  # called after the end of a claim that was usable

    def messages(self):
        return [claim.message() for claim in self._held.values()]

    def empty(self):
        return not self._held

    # -- the table of refusals

    def of(self, message):
        """The claim that a call belongs to; `message` is its field 1, or None."""
        if message is None:
            usable = [claim for claim in self._held.values() if self._serves(claim)]
            if len(usable) == 1:
                return usable[0]
            raise not_claimed(f"{len(usable)} claims are held and the call names none")
        claim = self._held.get(message.task_id)
        if claim is None or not self._serves(claim):
            raise not_claimed(f"task {message.task_id} is not held")
        self._check_epoch(claim, message)
        return claim

    @staticmethod
    def _serves(claim):
        return claim.usable and claim.ending is None

    @staticmethod
    def _check_epoch(claim, message):
        if claim.epoch != message.epoch:
            text = f"claim {message.epoch} of task {message.task_id} is not held"
            raise Failure("aborted", f"{text}; epoch {claim.epoch} is", "STALE_EPOCH")

    def _check_claim(self, request):
        if not TASK_ID.match(request.task_id) or not 1 <= request.epoch <= MAX_EPOCH:
            raise Failure("invalid_argument", "no task id, or no epoch")
        if request.repo_url and not request.repo_url.startswith(("https://", "ssh://")):
            raise Failure("invalid_argument", "repo_url is neither https nor ssh")
        if request.ref.startswith("-"):
            raise Failure("invalid_argument", "no branch, tag or commit")
        if self.draining:
            raise Failure("unavailable", "the worker is draining", "DRAINING")

    # -- making

    async def claim(self, call, request):
        self._check_claim(request)
        claim = Claim(request)
        held = self._held.get(request.task_id)
        if held is not None:
            if request.epoch <= held.epoch:
                text = f"task {held.task_id} is held with epoch {held.epoch}"
                raise Failure("already_exists", text, "ALREADY_CLAIMED")
            await self.end(held, "claimed with a higher epoch")
            self._check_claim(request)
        if claim.task_id in self._held or len(self._held) >= self.slots:
            raise Failure("already_exists", "all slots are taken", "ALREADY_CLAIMED")
        self._held[claim.task_id] = claim
        claim.maker = call
        try:
            claim.make_folders()
            await self._clone(claim, request)
        except BaseException:
            claim.maker = None
            if claim.ending is None:  # else a release came meanwhile
                await self.end(claim, "could not be made")
            raise
        claim.maker = None
        claim.usable = True
        if self.counts_ttl:
            claim.renew(asyncio.get_running_loop().time(), self._expire)
        return pb.ClaimResponse(
            root=claim.root,
            home=claim.home,
            os=platform.system().lower(),
            arch={"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine()),
        )

    async def _clone(self, claim, request):
        if not request.repo_url:
            return
        await self._git(claim, "clone", "--quiet", "--", request.repo_url, claim.root)
        if request.ref:
            await self._git(claim, "-C", claim.root, "checkout", "--quiet", request.ref, "--")

    async def _git(self, claim, *args):
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": claim.home}
        env.update(GIT_TERMINAL_PROMPT="0", GIT_SSH_COMMAND="ssh -o BatchMode=yes")
        process = await asyncio.create_subprocess_exec(
            "git", *args, env=env, start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            _, errors = await asyncio.wait_for(process.communicate(), CLONE_SECONDS)
        except BaseException:
            os.killpg(process.pid, 9)
            await process.wait()
            raise
        if process.returncode:
            text = errors.decode("utf-8", "replace").strip()[-1024:]
            raise Failure("failed_precondition", text, "CLONE_FAILED")

    # -- keeping

    def heard(self, response, sent_at):
        """Takes the answer to a heartbeat that was sent at `sent_at`."""
        for message in response.renewed:
            claim = self._exactly(message)
            if claim is not None and claim.usable:
                claim.renew(sent_at, self._expire)
        for message in response.dropped:
            claim = self._exactly(message)
            if claim is not None:
                self.start_end(claim, "dropped by the control plane")

    def _exactly(self, message):
        claim = self._held.get(message.task_id)
        return claim if claim is not None and claim.epoch == message.epoch else None

    def _expire(self, claim):
        self.start_end(claim, "not renewed for its ttl")

    # -- ending

    async def release(self, call, request):
        message = request.claim if request.HasField("claim") else None
        if message is None:
            claim = self.of(None)
        else:
            claim = self._held.get(message.task_id)
            if claim is None or message.epoch > claim.epoch:
                return pb.ReleaseResponse()
            self._check_epoch(claim, message)
        return pb.ReleaseResponse(killed=await self.end(claim, request.reason or "released"))

    async def drain(self, call, request):
        self.draining = True
        return pb.DrainResponse(claims=self.messages())

    async def end_all(self, why, reason="interrupted"):
        for claim in list(self._held.values()):
            self.start_end(claim, why, reason)
        for claim in list(self._held.values()):
            await self.end(claim, why)

    async def end(self, claim, why):
        """Ends it and gives the number of its programs that ran; it is free only afterwards."""
        return await to_the_end(self.start_end(claim, why))

    def start_end(self, claim, why, reason="interrupted"):
        if claim.ending is None:
            claim.ending = asyncio.create_task(self._end(claim, why, reason))
        return claim.ending

    async def _end(self, claim, why, reason):
        claim.forget_expiry()
        claim.env = {}
        if claim.maker is not None:
            claim.maker.give_up(Failure("aborted", why))
        for call in list(claim.calls):
            call.give_up(not_claimed(f"task {claim.task_id}: {why}"))
        running = [run for run in claim.execs.values() if not run.gone.is_set()]
        for run in running:
            run.stop(reason)
        for run in running:
            await run.gone.wait()
        tasks = [call.task for call in (*claim.calls, claim.maker) if call and call.task]
        if tasks:
            await asyncio.wait(tasks)
        if claim.folder is not None:
            await asyncio.to_thread(shutil.rmtree, claim.folder, True)
        self._held.pop(claim.task_id, None)
        self._on_end(claim)
        return len(running)
