"""The server's register, where it keeps one: only with a teacher's secret is there a class.

GLASSBOX_TEACHER_SECRET has it, or the file that GLASSBOX_TEACHER_SECRET_FILE names.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from engine.audience import KEY, Audience
from lessons.classroom.attempts import Attempts
from lessons.classroom.database import Database, DatabaseError, database_url
from lessons.classroom.passes import Passes
from lessons.classroom.register import Joined, LearnerInfo, Register, RegisterError
from lessons.classroom.throttle import Throttle

SECRET_SETTING = "GLASSBOX_TEACHER_SECRET"
FILE_SETTING = "GLASSBOX_TEACHER_SECRET_FILE"
SHORTEST = 12  # characters of a secret
RETRY_SECONDS = 10.0

log = logging.getLogger("glassbox")


class SchoolError(RuntimeError):
    """The server keeps no register though it should; the message says why and what helps."""


class School:
    """A register with its answers, and who may see them."""

    def __init__(self, secret: str, database: Database):
        self.register = Register(database)
        self.attempts = Attempts(database, self.register.clock)
        self.seal_key = hmac.digest(secret.encode(), b"glassbox: a learner's work", "sha256")
        self.passes = Passes()
        self._floor: tuple[int, Callable[[], bool]] | None = None  # a class, for so long
        self._key_key = hmac.digest(secret.encode(), b"glassbox: keys of the engine", "sha256")
        self._secret = hashlib.sha256(secret.encode()).digest()
        # Wrong secrets a minute. Behind a proxy all come from one address.
        self._teachers = Throttle(each=5, together=20)
        self._joins = Throttle(each=20, together=200)

    def is_teacher(self, secret: str, who: str) -> bool:
        """Whether somebody who comes from `who` knows the secret.

        Raises RegisterError after too many wrong ones, whatever is right then.
        """
        wait = self._teachers.take(who)
        if wait:
            raise RegisterError(f"Too many wrong secrets; try again in {wait} seconds")
        # Digests have one length, and comparing them takes one time.
        given = hashlib.sha256(secret.encode("utf-8", "replace")).digest()
        right = hmac.compare_digest(given, self._secret)
        if right:
            self._teachers.forgive(who)
        return right

    def join(self, code: str, name: str, identity: str | None, who: str) -> Joined:
        """`Register.join`, with so many wrong codes a minute."""
        wait = self._joins.take(who)
        if wait:
            raise RegisterError(f"Too many wrong codes; try again in {wait} seconds")
        joined = self.register.join(code, name, identity)
        self._joins.forgive(who)
        return joined

    @property
    def floor(self) -> int | None:
        """The class that may send to the shared engine by name."""
        given = self._floor
        return given[0] if given is not None and given[1]() else None

    def give_floor(self, class_id: int, shown: str) -> None:
        """It is this class's as long as the pass is good that the teacher has shown."""
        self._floor = class_id, self.passes.while_good(shown)

    def take_floor(self) -> None:
        """It is nobody's."""
        self._floor = None

    def directing(self, shown: str) -> Callable[[], bool]:
        """What tells whether who has shown this pass may command the shared engine.

        As long as the pass is good, and some class has the floor.
        """
        is_good = self.passes.while_good(shown)
        return lambda: is_good() and self.floor is not None

    def delete_class(self, class_id: int) -> None:
        """`Register.delete_class`; the floor is nobody's where it was theirs.

        (The next class may get the number of a deleted one.)
        """
        if self.floor == class_id:
            self.take_floor()
        self.register.delete_class(class_id)

    def engine_key(self, learner: LearnerInfo) -> str:
        """What the learner sends to the shared engine with: it opens nothing of their work.

        It is good while their class has the floor, and their personal code is the same.
        """
        found = self.register.named(learner.id)
        return "" if found is None else self._engine_key(*found)

    def name_behind(self, key: str) -> str | None:
        """Who has this key; None where nobody has, or their class has not the floor."""
        number = key.removeprefix(KEY).partition("-")[0]
        floor = self.floor
        if floor is None or not (number.isascii() and number.isdigit() and len(number) < 10):
            return None
        found = self.register.named(int(number))
        if found is None or found[0].class_id != floor:
            return None
        right = self._engine_key(*found).encode()
        return found[0].name if hmac.compare_digest(key.encode(), right) else None

    def _engine_key(self, learner: LearnerInfo, digest: str) -> str:
        proof = hmac.digest(self._key_key, digest.encode(), "sha256").hex()[:40]
        return f"{KEY}{learner.id}-{proof}"


def attend(audience: Audience) -> None:
    """Have the shared engine know the server's class: whose a key is, and the rules that are kept.

    Opens the register, so that its database is up to date before anybody comes.
    """
    audience.look_up = name_behind
    _opened.audience = audience
    school()


def name_behind(key: str) -> str | None:
    """`School.name_behind`, where the server has a class."""
    found = school()
    try:
        return None if found is None else found.name_behind(key)
    except SQLAlchemyError:
        log.warning("the class's register cannot be reached, so nobody is known by name")
        return None


def teacher_secret(environ: Mapping[str, str] = os.environ) -> str:
    """The teacher's secret; "" where there is none. Raises SchoolError."""
    secret = environ.get(SECRET_SETTING, "").strip()
    file = environ.get(FILE_SETTING, "").strip()
    if file and not secret:
        try:
            secret = Path(file).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SchoolError(f"{FILE_SETTING}: {file} cannot be read ({error})") from None
        if not secret:
            raise SchoolError(f"{FILE_SETTING}: {file} is empty; write the teacher's secret to it")
    if secret and len(secret) < SHORTEST:
        raise SchoolError(
            f"{SECRET_SETTING} has {len(secret)} characters; one that nobody guesses has "
            f"{SHORTEST} at least"
        )
    return secret


def open_school(environ: Mapping[str, str] = os.environ) -> School | None:
    """The register that the settings name, up to date; None where they name none.

    Raises SchoolError.
    """
    secret = teacher_secret(environ)
    if not secret:
        return None
    try:
        return School(secret, Database(database_url(environ)))
    except DatabaseError as error:
        raise SchoolError(str(error)) from None


class _Opened:
    """The process's school, opened once; one that could not be is tried again later."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.done = False
        self.school: School | None = None
        self.trouble = ""
        self.tried_at = 0.0
        self.audience: Audience | None = None  # of the engine whose rules the register keeps

    def get(self) -> School | None:
        with self.lock:
            waits = self.trouble and time.monotonic() - self.tried_at < RETRY_SECONDS
            if self.done or waits:
                return self.school
            self.tried_at = time.monotonic()
            try:
                self.school, self.trouble, self.done = self._open(), "", True
            except SchoolError as error:
                self.trouble = str(error)
                log.warning("there is no class on this server: %s", error)
            return self.school

    def _open(self) -> School | None:
        found = open_school()
        if found is not None and self.audience is not None:
            try:
                self.audience.rules = found.register.engine_rules()
            except SQLAlchemyError:
                raise SchoolError("the register was opened, and cannot be read") from None
        return found


_opened = _Opened()


def school() -> School | None:
    """The process's register; None where it keeps none, or cannot (`trouble`)."""
    return _opened.get()


def trouble() -> str:
    """Why there is no register though the settings ask for one, or ""."""
    return _opened.trouble
