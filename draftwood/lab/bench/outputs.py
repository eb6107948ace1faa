"""Output files of a run: checked before any work, written when the run ends or is interrupted."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from draftwood.errors import DraftwoodError
from draftwood.files import (
    check_apart,
    check_writable,
    encode,
    is_stream,
    reason,
    rescued,
    write_json,
    write_text,
)
from draftwood.lab.bench.document import Document
from draftwood.lab.bench.journal import Journal, beside


@dataclass(frozen=True)
class Outputs:
    """Places of a run's files; None for a file that is not asked for.

    Attributes:
        json: the document; the journal is kept beside it, if it is a file.
        html: the same as a page.
        plots: directory of the figures; it is made if it is missing.
        trace: a line per step, written while the run goes on.
    """

    json: Path | None = None
    html: Path | None = None
    plots: Path | None = None
    trace: Path | None = None

    def check(self, inputs: Iterable[Path | str | None] = ()) -> None:
        """Refuse what cannot be written, before any work is done.

        Args:
            inputs: files that the run reads.

        Raises:
            DraftwoodError: a file or the directory cannot be written, two files are one, or what
                draws figures is not installed.
        """
        written = (self.json, self.html, self.trace)
        for path in written:
            if path is not None:
                check_writable(path)
        check_apart((*written, self._journal), inputs)
        if self.html is not None or self.plots is not None:
            from draftwood.lab.bench import plots

            plots.check()
        if self.plots is not None:
            try:
                self.plots.mkdir(exist_ok=True)
            except OSError as error:
                raise DraftwoodError(
                    f"cannot make {self.plots}: {error.strerror}; name another directory"
                ) from error
            check_writable(self.plots / "figure")

    def journal(self, *, resume: bool, warm: bool = False) -> Journal:
        """The journal beside the document; it stores nothing without one, and of a warm run.

        Raises:
            DraftwoodError: there is a journal and ``resume`` is False, or ``resume`` is True for a
                run without a document, with a trace or with warm drafters.
        """
        if resume and warm:
            raise DraftwoodError(
                "--resume cannot continue a --warm run, because drafters' state is not saved: "
                "leave out --resume to start again, or --warm to begin every prompt without state"
            )
        if resume and self._journal is None:
            raise DraftwoodError(
                "--resume needs --json OUT, a file: the journal of a run lies beside its document"
            )
        if resume and self.trace is not None:
            raise DraftwoodError(
                "--trace cannot be resumed, the steps of the part that has ended are not kept: "
                "leave --trace out"
            )
        found = Journal(self._journal, resume=resume)
        # A warm run's tables are not written, so it cannot be resumed.
        return Journal(None) if warm else found

    def write(self, document: Document) -> None:
        """Write the document, its page and its figures.

        Raises:
            OSError: one of them cannot be written; the message says where the result is.
        """
        try:
            if self.json is not None:
                write_json(self.json, document)
            if self.html is not None:
                from draftwood.lab.bench.report import page

                write_text(self.html, page.html(document))
            if self.plots is not None:
                from draftwood.lab.bench import plots

                plots.save(document, self.plots)
        except OSError as error:
            raise self.unwritten(error, document) from error

    def unwritten(self, error: OSError, result: object) -> OSError:
        """Name the place of a result that could not be written, in an error.

        That is the journal, or without one a file in the temporary directory, written here.
        """
        kept = self._journal
        if kept is not None and kept.exists():
            where = (
                f"the result is kept in {kept}: make room and repeat the command with --resume "
                "added"
            )
        else:
            name = "result.json" if self.json is None else self.json.name
            where = rescued(name, (json.dumps(encode(result), indent=1) + "\n").encode())
        return OSError(f"{reason(error)}; {where}")

    @property
    def _journal(self) -> Path | None:
        """The journal's place; None: there is no document, or nothing can lie beside it."""
        return None if self.json is None or is_stream(self.json) else beside(self.json)
