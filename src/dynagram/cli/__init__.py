"""The command line: one command a module, registered here.

Each command parses, calls the library and prints. Whatever the user did wrong ends in one line on
stderr and exit code 2; a failure that is ours keeps its traceback.
"""

from __future__ import annotations

import _thread
import contextlib
import io
import os
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dynagram.cli._advise import advise
from dynagram.cli._bayes import bayes
from dynagram.cli._check import check
from dynagram.cli._cite import cite
from dynagram.cli._compare import compare
from dynagram.cli._critical import critical
from dynagram.cli._escape import escape
from dynagram.cli._fields import fields
from dynagram.cli._forecast import forecast
from dynagram.cli._measure import measure
from dynagram.cli._plateaus import plateaus
from dynagram.cli._predict import predict
from dynagram.cli._report import report
from dynagram.cli._reproduce import reproduce
from dynagram.cli._simulate import simulate
from dynagram.cli._studio import studio
from dynagram.cli._train import train
from dynagram.cli._train_predict import train_predict
from dynagram.cli._watch import watch
from dynagram.errors import DynagramError, printable

_UNREAD = 141  # as a program that SIGPIPE ends; 1 would say that a check failed

# Newer typer carries its own copy of click: this finds the base class in either.
_ClickException: type[Exception] = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)


class OneLineErrors(TyperGroup):
    """A command group that reports errors as `error: …` and exits with 2, without a traceback."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        options["standalone_mode"] = False
        words = sys.argv[1:] if args is None else list(args)
        try:
            with _warnings_at_the_end():
                code = super().main(words or ["--help"], *rest, **options)
        except DynagramError as error:
            _fail(str(error))
        except BrokenPipeError:  # whoever read the output has gone, as `head` does
            _drop_output()
            sys.exit(_UNREAD)
        except OSError as error:  # a place that cannot be read or written, which ours are not
            _fail(f"{error.filename or 'system'}: {error.strerror or error}")
        except MemoryError:
            _fail("out of memory: ask for less")
        except typer.Abort:
            sys.exit(130)
        except RuntimeError as error:  # JAX has no other word for what the machine lacks
            if any(words in str(error) for words in ("RESOURCE_EXHAUSTED", "Out of memory")):
                _fail("out of memory: ask for less")
            if "initialize backend" not in str(error):
                raise
            _fail(f"JAX_PLATFORMS = {os.environ.get('JAX_PLATFORMS')!r}: {error}")
        except _ClickException as error:
            _fail(error.format_message())  # pyright: ignore[reportAttributeAccessIssue]
        else:
            if code == 130:
                print("interrupted", file=sys.stderr)
            sys.exit(code if isinstance(code, int) else 0)


@contextlib.contextmanager
def _warnings_at_the_end() -> Iterator[None]:
    """Warnings of a command that answers, each once and in one line; an error needs none beside."""
    told: dict[str, None] = {}
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: told.setdefault(" ".join(str(message).split()))
        yield
    for message in told:
        print("warning:", printable(message), file=sys.stderr)


def _drop_output() -> None:
    """Let Python close a pipe that nobody reads without a word about it."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str) -> None:
    print("error:", printable(" ".join(message.split())), file=sys.stderr)
    sys.exit(2)


app = typer.Typer(
    cls=OneLineErrors,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="How deep networks learn, layer by layer: predict, simulate, measure, show.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    critical,
    advise,
    predict,
    simulate,
    compare,
    train,
    train_predict,
    bayes,
    measure,
    check,
    fields,
    escape,
    forecast,
    plateaus,
    watch,
    reproduce,
    report,
    studio,
    cite,
):
    app.command()(command)


def _print_version(wanted: bool | None) -> None:
    if wanted:
        print("dynagram", version("dynagram"))
        raise typer.Exit


@app.callback()
def _top(
    _: Annotated[
        bool | None,
        typer.Option(
            "--version",
            help="Print the version and leave.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = None,
) -> None:
    pass


def _keep_compiled_code() -> None:
    """Keep what JAX compiles in the folder named by DYNAGRAM_CACHE; without it nothing is kept.

    Each command is a new process and spends most of its time on compiling the same few functions.
    """
    if folder := os.environ.get("DYNAGRAM_CACHE"):
        folder = os.path.abspath(folder)  # an address of a cloud is none of ours to open
        try:
            os.makedirs(folder, exist_ok=True)
            writable = os.access(folder, os.W_OK | os.X_OK)
        except OSError:
            writable = False
        if not writable:
            _fail(f"DYNAGRAM_CACHE = {folder!r}: expected a folder that can be written")
        import jax

        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def deliver_lost_interrupts() -> None:
    """Raise a Ctrl-C again that Python dropped because a destructor or a callback was running."""
    usual = sys.unraisablehook

    def hook(lost: Any) -> None:
        if issubclass(lost.exc_type, KeyboardInterrupt):
            # A moment later: what is raised in here would be dropped again.
            threading.Timer(0.05, _thread.interrupt_main).start()
        else:
            usual(lost)

    sys.unraisablehook = hook


def _write_in_any_encoding() -> None:
    """What the encoding of a terminal or pipe cannot write becomes a question mark."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace" if stream is sys.stdout else "backslashreplace")


def main() -> None:
    """The console script."""
    _write_in_any_encoding()
    _keep_compiled_code()
    deliver_lost_interrupts()
    app(prog_name="dynagram")
