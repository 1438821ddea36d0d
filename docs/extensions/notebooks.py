"""Notebooks of the gallery: run their cells, and show them as pages of the documentation.

    python docs/extensions/notebooks.py docs/gallery/*.ipynb      runs them, stores what they show

A notebook is the plain JSON of Jupyter (nbformat 4): it opens in Jupyter, in editors and on code
hosts. Running one here needs no Jupyter; a chart is stored as SVG, so that pages load nothing.
The hook of mkdocs shows what is stored and runs nothing.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import html
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

_SUFFIX = ".ipynb"

# --- running ----------------------------------------------------------------------------------


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with what its cells print and show now, from a fresh start.

    >>> cell = {"cell_type": "code", "source": ["a = 2\\n", "print(a)\\n", "a + 1"]}
    >>> [output["output_type"] for output in run({"cells": [cell]})["cells"][0]["outputs"]]
    ['stream', 'execute_result']
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            outputs = _run_cell("".join(cell["source"]), names, count)
            cell = cell | {"execution_count": count, "outputs": outputs}
        cells.append(cell)
    return notebook | {"cells": cells}


def _run_cell(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), f"cell {count}", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"cell {count}", "eval"), names)
    outputs = []
    if text := printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(text)})
    if value is not None:
        shown = {"data": _shown(value), "execution_count": count, "metadata": {}}
        outputs.append(shown | {"output_type": "execute_result"})
    return outputs


def _shown(value: Any) -> dict[str, list[str]]:
    """What a notebook shows of a value: a chart as SVG, a table as HTML, and always a text."""
    import altair as alt
    import vl_convert

    from dynagram.report._theme import LIGHT

    if isinstance(value, alt.TopLevelMixin):
        specification = json.dumps(value.to_dict())  # pyright: ignore[reportAttributeAccessIssue]
        svg = vl_convert.vegalite_to_svg(specification, config=LIGHT)
        return {"image/svg+xml": _lines(svg), "text/plain": ["a chart"]}
    shown = {"text/plain": _lines(repr(value))}
    table = getattr(value, "_repr_html_", None)
    return shown if table is None else {"text/html": _lines(table())} | shown


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main(paths: list[str]) -> None:
    """Run notebooks and store what they show; the cells stay as they are."""
    for path in map(Path, paths):
        made = run(json.loads(path.read_text(encoding="utf-8")))
        path.write_text(json.dumps(made, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        print(path)


# --- showing ----------------------------------------------------------------------------------


def as_markdown(notebook: dict[str, Any]) -> str:
    """Cells as Markdown: words, fenced code, and what is stored of its output."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [_output(output, source) for output in cell["outputs"]]
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any], source: str) -> str:
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```"
    data = output["data"]
    if "image/svg+xml" in data:
        code = base64.b64encode("".join(data["image/svg+xml"]).encode()).decode()
        comment = re.search(r"^# (.*)", source, re.M)
        words = html.escape(comment.group(1) if comment else "chart")
        return f'<img alt="{words}" src="data:image/svg+xml;base64,{code}">'
    if "text/html" in data:  # one line: an empty line would end the block
        return f"<div>{''.join(data['text/html']).replace(chr(10), ' ')}</div>"
    return f"```text\n{''.join(data['text/plain'])}\n```"


def on_files(files: Any, config: Any) -> Any:
    """Notebooks below the documentation become pages, under the addresses that Markdown has."""
    from mkdocs.structure.files import File

    class Notebook(File):
        def is_documentation_page(self) -> bool:
            return True

        @property
        def content_string(self) -> str:
            return as_markdown(json.loads(Path(self.abs_src_path or "").read_text("utf-8")))

    for file in [file for file in files if file.src_uri.endswith(_SUFFIX)]:
        files.remove(file)
        page = Notebook(
            file.src_uri, config.docs_dir, config.site_dir, config.use_directory_urls,
            dest_uri=file.src_uri.removesuffix(_SUFFIX) + ".html",
        )  # fmt: skip
        files.append(page)
    return files


if __name__ == "__main__":
    main(sys.argv[1:])
