"""Many effects: equal to real runs, unmixed by races, old or new after a kill, taken back byte for byte."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from moot.preview.call_effect import CallEffect, PathChange, PathState
from moot.preview.effect_store import EffectStore, StoredEffect
from moot.preview.effect_writer import EffectWriter
from moot.preview.path_state import NotBound, read_state
from tests.preview import random_changes
from tests.preview.overlay_run import ABOUT, new_store, scan_run, store_scan
from tests.preview.random_changes import make_tree, run_script, tree_of

Tree = dict[str, tuple[str, int, bytes]]


def run_effects(count: int, seed: int) -> str:
    """A script in an overlay and for real; what is applied equals the real run, and is taken back."""
    for number in range(count):
        with _folders(seed + number) as (base, real, store):
            before = tree_of(base)
            run_script(real, random.Random(seed + number))
            command = [sys.executable, "-S", random_changes.__file__, str(base), str(seed + number)]
            scan = scan_run(base, base.parent / "scratch", command)
            assert tree_of(base) == before, "the overlay changed the folder"
            stored = store_scan(scan, store)
            writer = EffectWriter(store)
            writer.apply(stored)
            assert tree_of(base) == tree_of(real), f"seed {seed + number}"
            writer.undo(stored)
            assert tree_of(base) == before, f"seed {seed + number}"
            assert {each.name for each in store.folder.iterdir()} == {stored.hash}
    return f"{count:,} effects in an overlay equal real runs, and are taken back byte for byte"


def run_effect_kills(count: int, seed: int) -> str:
    """SIGKILL before each step of applying and of taking back, and in what mends it."""
    kills = 0
    for number in range(count):
        with _folders(seed + number) as (base, real, store):
            draw = random.Random(seed + number)
            run_script(real, draw)
            before, after = tree_of(base), tree_of(real)
            stored = _between(base, real, store)
            for wanted, old, new in (("apply", before, after), ("undo", after, before)):
                step = 0
                while True:
                    step += 1
                    if not _killed(store, stored.hash, wanted, step):
                        break
                    kills += 1
                    for _ in range(draw.randint(0, 2)):
                        _killed(store, stored.hash, "recover", draw.randint(1, 10))
                    mended = new_store(store.folder)
                    EffectWriter(mended).recover()
                    found = mended.get(stored.hash)
                    assert found is not None
                    is_new = found.status == ("applied" if wanted == "apply" else "undone")
                    assert tree_of(base) == (new if is_new else old), f"seed {seed + number}, step {step}"
                    assert not [each for each in base.iterdir() if each.name.startswith(".moot-effect-")]
                    if is_new:
                        # Once more from the beginning.
                        found.set_status("told" if wanted == "undo" else "applied")
                        if wanted == "apply":
                            EffectWriter(mended).undo(found)
                            found.set_status("told")
                        else:
                            EffectWriter(mended).apply(found)
    return f"{kills:,} kills in applying and taking back: old or new each time"


def run_effect_races(count: int, seed: int) -> str:
    """Somebody else changes one of the paths, or a folder above, before a random step."""
    applied = 0
    for number in range(count):
        with _folders(seed + number) as (base, real, store):
            draw = random.Random(seed + number)
            run_script(real, draw)
            before, after = tree_of(base), tree_of(real)
            stored = _between(base, real, store)
            if not stored.effect.changes:
                continue
            race = _Race(base, stored, draw)
            try:
                EffectWriter(store, on_step=race.step).apply(stored)
            except NotBound:
                _check_same(base, before, race, f"seed {seed + number}: refused")
                if race.written is not None and race.target.is_file() and not race.target.is_symlink():
                    assert race.target.read_bytes() == race.written, f"seed {seed + number}: lost"
            else:
                applied += 1
                _check_same(base, after, race, f"seed {seed + number}: applied")
            assert not (base.parent / "outside" / "a").exists()
    return f"{count:,} races, {applied:,} of them applied as a whole and the others not at all"


class _Race:
    """One change of somebody else, at a random step."""

    def __init__(self, base: Path, stored: StoredEffect, draw: random.Random) -> None:
        change = draw.choice(stored.effect.changes)
        self.target = base / change.path
        if draw.random() < 0.2 and self.target.parent != base:
            self.target = self.target.parent
        self.written: bytes | None = None
        self._left = draw.randint(1, 3 + 4 * len(stored.effect.changes))
        self._draw = draw
        self._outside = base.parent / "outside"
        self._outside.mkdir()

    def step(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._change()

    def _change(self) -> None:
        path, data = self.target, self._draw.randbytes(8)
        if not path.parent.is_dir() or path.parent.is_symlink():
            return
        match self._draw.randint(0, 4):
            case 0 | 1 if not path.is_dir() and not path.is_symlink():
                # Whole, as editors write.
                beside = path.parent / "beside"
                beside.write_bytes(data)
                beside.replace(path)
                self.written = data
            case 2 if os.path.lexists(path):
                _remove(path)
            case 3 if os.path.lexists(path) and not path.is_symlink():
                path.chmod(0o711 if path.is_dir() else 0o640)
            case 4:
                if os.path.lexists(path):
                    path.rename(path.parent / "moved")
                path.symlink_to(self._outside)
            case _:
                pass


def _check_same(base: Path, expected: Tree, race: _Race, about: str) -> None:
    target = str(race.target.relative_to(base))
    moved = str((race.target.parent / "moved").relative_to(base))

    def others(tree: Tree) -> Tree:
        around = [target, moved]
        return {
            path: state
            for path, state in tree.items()
            if not any(path == each or path.startswith(f"{each}/") for each in around)
            # Folders above are there because of what the other made in them.
            and not (state[0] == "folder" and target.startswith(f"{path}/"))
            and not path.startswith(".moot-effect-")
        }

    assert others(tree_of(base)) == others(expected), about


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


@contextmanager
def _folders(seed: int) -> Iterator[tuple[Path, Path, EffectStore]]:
    """A folder, the same for a real run, and a store."""
    with tempfile.TemporaryDirectory() as top:
        base = Path(top) / "base"
        base.mkdir()
        make_tree(base, random.Random(seed))
        real = Path(top) / "real"
        shutil.copytree(base, real, symlinks=True)
        yield base, real, new_store(Path(top) / "store")


def _between(base: Path, real: Path, store: EffectStore) -> StoredEffect:
    """The effect that makes one folder as the other is, without an overlay."""
    contents: dict[str, bytes] = {}
    first, second = _states(base, contents), _states(real, contents)
    changes = [
        PathChange(str(base), path, first.get(path), second.get(path))
        for path in sorted(first.keys() | second.keys())
        if first.get(path) != second.get(path)
    ]
    effect = CallEffect(call="c", nonce="n", changes=tuple(changes), result="r")
    return store.save(effect, contents, ABOUT)


def _states(root: Path, contents: dict[str, bytes]) -> dict[str, PathState | None]:
    made = {}
    for name in tree_of(root):
        path = root / name
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            made[name] = read_state(folder, path.name, contents)
        finally:
            os.close(folder)
    return made


def _killed(store: EffectStore, hash: str, what: str, step: int) -> bool:
    """Whether a process of its own was killed before that step."""
    child = os.fork()
    if child == 0:
        left = [step]

        def count() -> None:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        code = 1
        try:
            own = new_store(store.folder)
            writer = EffectWriter(own, on_step=count)
            stored = own.get(hash)
            acts: dict[str, Callable[[StoredEffect], None]] = {"apply": writer.apply, "undo": writer.undo}
            if what == "recover":
                writer.recover()
            elif stored is not None:
                acts[what](stored)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)
