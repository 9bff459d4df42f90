"""The Python blocks of a page, run one after another in one process and one namespace.

`Session` is the side that asks; `python -m benchmarks.docs_check.session` the one that runs
blocks: a line of JSON in, a line of JSON out. An expression that stands alone with a
comment on its last line has the comment for its value; other comments are prose.
"""

import ast
import contextlib
import io
import json
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

from benchmarks.docs_check.commands import environment


class Session:
    """A Python process that runs a page's blocks and keeps their names."""

    def __init__(self, folder: Path) -> None:
        """Starts no process before the first block."""
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Returns the answer to a request, or an error after `seconds`."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.docs_check.session"],
                cwd=self._folder,
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        clock = threading.Timer(seconds, process.kill)
        clock.start()
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            clock.cancel()
        if not answer:
            self.close()
            error = f"no answer within {seconds:g} s, or the process ended"
            return {"printed": "", "values": [], "error": error}
        return json.loads(answer)

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def run_block(code: str, line: int, names: dict[str, Any]) -> dict[str, Any]:
    """Returns a block's output, its commented expressions with values, and its error."""
    output, values, error = io.StringIO(), [], None
    lines = code.splitlines()
    try:
        with contextlib.redirect_stdout(output):
            for node in ast.parse(code).body:
                ast.increment_lineno(node, line)
                if not isinstance(node, ast.Expr):
                    part = ast.Module([node], [])
                    exec(compile(part, "page", "exec"), names)
                    continue
                value = eval(compile(ast.Expression(node.value), "page", "eval"), names)
                assert node.end_lineno is not None
                last = lines[node.end_lineno - line - 1][node.end_col_offset :]
                _, mark, comment = last.partition("#")
                if mark and value is not None:
                    values.append((comment.strip(), str(value)))
                elif mark:
                    values.append((comment.strip(), output.getvalue().splitlines()[-1]))
    except Exception as caught:
        place = traceback.extract_tb(caught.__traceback__)[-1]
        error = f"{type(caught).__name__}: {caught} ({place.filename}:{place.lineno})"
    return {"printed": output.getvalue(), "values": values, "error": error}


def main() -> None:
    """Runs the requests that come on standard input, until it ends."""
    names: dict[str, Any] = {"__name__": "__main__"}
    answers = sys.stdout
    for request in map(json.loads, sys.stdin):
        if "name" in request:
            names[request["name"]] = request["text"]
            answer = {"printed": "", "values": [], "error": None}
        else:
            answer = run_block(request["code"], request["line"], names)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
