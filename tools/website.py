"""What mkdocs calls while it makes the website of README and docs/ (mkdocs.yml): pages from elsewhere, and notebooks.

The pages are written so that they can be read without a website, too. So links in them lead to files of the repository;
on the website they lead to the pages that are made of these.
"""

import posixpath
import re
from pathlib import Path

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbconvert.exporters import MarkdownExporter

ROOT = Path(__file__).resolve().parents[1]
# Pages of the repository's root: their names on the website.
_ROOTS = {name: name for name in ("SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")} | {"README.md": "index.md"}
_FENCE = re.compile(r"^```python .*$", re.MULTILINE)  # what the tests know of a block, highlighting does not
_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
_CODE = re.compile(r"`[^`\n]+`")
_NAME = re.compile(r"(?<=<td><code>)[\w.%]+(?=</code>)")
_BETWEEN_WORDS = re.compile(r"(?<=[a-z.])(?=[A-Z])|(?<=_)")
# How pandas wants its tables to look; the website has its own way.
_FRAME = re.compile(r'<(table|tr) (?:border="1" class="dataframe"|style="text-align: right;")>')
_STYLE = re.compile(r"<style.*?</style>", re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/, and the pictures of notebooks."""
    for source, name in _ROOTS.items():
        files.append(File.generated(config, name, content=_on_site((ROOT / source).read_text(), "")))
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        text, pictures = notebook(path)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
        for name, content in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def on_post_build(config: MkDocsConfig) -> None:
    """Write what is searched as a script, too: a page opened as a file can load nothing else (docs/site.js)."""
    index = Path(config.site_dir) / "search" / "search_index.json"
    index.with_suffix(".js").write_text(f"var __index = {index.read_text()}")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A page as the website has it."""
    if page.file.generated_by is None:
        markdown = _on_site(markdown, "docs")
    lines = _FENCE.sub("```python", markdown).split("\n")
    return "\n".join(_unescaped(line) if line.startswith("|") else line for line in lines)


def _unescaped(row: str) -> str:
    """A row of a table: in code, Python's Markdown shows the backslash that others want before a bar."""
    return _CODE.sub(lambda code: code[0].replace(r"\|", "|"), row)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """What a small screen needs: long names in a table may break between their words, options not after their hyphens,
    and quoted errors between words."""
    html = _NAME.sub(lambda name: _BETWEEN_WORDS.sub("<wbr>", name[0]), html)
    html = html.replace("<code>-", '<code class="option">-')
    if page.file.src_uri == "troubleshooting.md":  # its blocks are sentences
        html = html.replace('<div class="highlight">', '<div class="highlight sentences">')
    return html.replace("<code>map&lt;string,string&gt;", "<code>map&lt;string,<wbr>string&gt;")


def notebook(path: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook, with what its cells have put out, as Markdown; and the pictures in it, by their names."""
    content = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    text, resources = MarkdownExporter().from_notebook_node(content, {"unique_key": path.stem})
    return _FRAME.sub(r"<\1>", _STYLE.sub("", text)), resources["outputs"]


def _on_site(text: str, directory: str) -> str:
    """Text whose links to files of the repository lead to their pages.

    Args:
        directory: where the text lies in the repository.
    """

    def link(found: re.Match[str]) -> str:
        before, target, after = found.groups()
        if ":" in target:
            return found[0]
        path = posixpath.normpath(posixpath.join(directory, target))
        if path in _ROOTS:
            page = _ROOTS[path]
        elif path.startswith("notebooks/"):
            page = path.replace(".ipynb", ".md")
        else:
            page = path.removeprefix("docs/")
        return f"{before}{page}{after}"

    return _LINK.sub(link, text)
