"""What train writes beside scores: tables with names, and a page that needs nothing but itself."""

import dataclasses
import html.parser
import json
import re

import numpy as np
import pytest
from friends import NAMES, SMALL, graph_of, table

import seegera_fast as sf
from seegera_fast.command import suggestions
from seegera_fast.support import html as pages
from seegera_fast.support.report import number_texts

pytestmark = pytest.mark.usefixtures("somewhere")


def test_train_writes_tables_with_names(files, trained):
    graph = graph_of(files)
    model = sf.SeeGera.load(trained / "model.safetensors", graph)
    header, *rows = table(trained / "embedding.csv")
    assert header == ["node", *(f"z{k}" for k in range(6))]
    assert [row[0] for row in rows] == graph.nodes.tolist()
    assert np.allclose(np.array([row[1:] for row in rows], float), np.load(trained / "embedding.npy"), rtol=1e-6)
    header, *rows = table(trained / "links.csv")
    found = model.top_links(100, per_node=False, calibrated=True)
    assert [row[:2] for row in rows] == graph.nodes[found.pairs].tolist()
    content = json.loads((trained / "results.json").read_text())
    assert set(content["reliability"]) == {"plain", "calibrated"}
    assert content["calibration"] == dataclasses.asdict(model.calibration)
    assert "mrr" in content["ranking"]


class Reader(html.parser.HTMLParser):
    """Collects what a page asks a network for, the headings, the cells and the tags that are open at the end."""

    def __init__(self):
        super().__init__()
        self.asked, self.open, self.cells, self.headings, self.scripts = [], [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.asked += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "br", "path", "circle", "polyline"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attributes):
        self.asked += [value for name, value in attributes if name in ("src", "href")]

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.cells.append(data)
        elif self.open and self.open[-1] in ("h1", "h2"):
            self.headings.append(data)
        elif self.open and self.open[-1] == "script":
            self.scripts.append(data)


def test_the_page_needs_nothing_but_itself(trained):
    page = (trained / "report.html").read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(page)
    assert reader.asked == reader.open == []
    assert not re.search(r"url\(|@import|fetch\(", page)
    wanted = ["Scores", "Reliability", "Training", "Embedding", "Suggested links", "Settings", "Machine and versions"]
    assert reader.headings[1:] == wanted
    for name in table(trained / "links.csv")[1][:2]:
        assert name in reader.cells
    assert json.loads(reader.scripts[0]) == NAMES_IN_ORDER
    assert sf.__version__ in reader.cells


NAMES_IN_ORDER = sorted(NAMES)


def test_texts_of_a_page_are_shown_as_they_are():
    strange = "<b>&\"'\0\x1b\ud800"
    assert pages.text(strange) == "&lt;b&gt;&amp;&quot;&#x27;" + 3 * "\N{REPLACEMENT CHARACTER}"
    page = pages.page(strange, strange, [(strange, pages.table([strange], [[strange]]), True)])
    assert "<b>" not in page
    page.encode()
    drawn = pages.scatter(np.zeros((2, 2)), ["</script><script>", strange])
    assert drawn.count("</script>") == 1


@pytest.mark.parametrize(
    ("values", "options", "texts"),
    [
        ([0.5, 0.25], {}, ["0.5000", "0.2500"]),
        ([0.99999696, 0.9999952, 0.9], {"probabilities": True}, ["0.999997", "0.999995", "0.900000"]),
        ([0.99999, 0.99999], {"probabilities": True}, ["0.99999", "0.99999"]),
        ([1.0, 1 - 1e-12, 0.5], {"probabilities": True}, ["> 0.9999999", "> 0.9999999", "0.5000"]),
        ([1.0, 0.99996], {}, ["1.00000", "0.99996"]),
        ([1e-6, 1.05e-6, 0.25], {"apart": False}, ["0.000001", "0.000001", "0.250000"]),
        ([1e-14, 0.5, 0.0, -3.25], {}, ["1.0e-14", "0.5000", "0.0000", "-3.2500"]),
        ([0.1, 0.1 + 1e-13], {}, ["0.1000", "0.1000"]),
        ([], {}, []),
    ],
)
def test_numbers_have_as_many_digits_as_tell_them_apart(values, options, texts):
    assert number_texts(values, **options) == texts


def test_sure_links_are_told_apart(run, files, trained, tmp_path, monkeypatch):
    """On the screen and on the page. The file has all digits."""
    near = np.array([0.99999696, 0.999995232, 0.99998885, 0.99998665, 0.99997431], np.float32)

    def sure(*given, **options):
        links = suggestions.suggested_links(*given, **options)
        links["probability"] = near
        links["deviation"] = near * np.float32(1e-6)
        return {name: column[:5] for name, column in links.items()}

    monkeypatch.setattr("seegera_fast.command.written.suggested_links", sure)
    printed = run("train", *files, "--epochs", 1, "--out", "out", *SMALL)[1]
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    for text in ("0.999997", "0.999995", "0.999989", "0.999987", "0.999974"):
        assert text in printed
        assert f"<td class=number>{text}</td><td class=number>0.000001</td>" in page
    assert np.array_equal(np.array([row[2] for row in table(tmp_path / "out" / "links.csv")[1:]], np.float32), near)


def test_cells_of_numbers():
    drawn = pages.table(["name", "n", "p"], [["a", 1234567, 0.123456], ["b", None, None]])
    assert "<td class=number>1,234,567</td><td class=number>0.1235</td>" in drawn
    assert drawn.count('<td class="soft number">none</td>') == 2
    assert "<td class=number>4.840e-04</td>" in pages.table(["mse"], [[4.84e-4]])


def test_lines_stay_on_the_drawing():
    for points in ([(1, 5.0)], [(1, 5.0), (2, 5.0)], [(1, -3.0), (9, 1e9)]):
        drawn = pages.lines({"loss": points}, x="epoch")
        line = re.search(r'points="([^"]*)"', drawn)[1]
        at = np.array([pair.split(",") for pair in line.split()], float)
        assert (at >= 0).all()
        assert (at <= [pages.WIDTH, pages.HEIGHT]).all()


def test_huge_losses_are_drawn(run, tmp_path):
    for points in ([(1, 1e18)], [(1, -1e308), (2, 1e308)]):
        drawn = pages.lines({"loss": points}, x="epoch")
        assert "nan" not in drawn
        assert "inf" not in drawn


def test_a_large_graph_gets_no_links(run, tmp_path, monkeypatch):
    (tmp_path / "edges.csv").write_text("a,b\nb,c\nc,d\nd,e\ne,f\nf,a\n")
    command = ["train", "--edges", "edges.csv", "--task", "embed", "--epochs", 2, "--out", "out", *SMALL]
    assert run(*command)[0] == 0
    assert (tmp_path / "out" / "links.csv").exists()
    monkeypatch.setattr("seegera_fast.command.written.MOST_NODES", 5)
    status, printed, _ = run(*command)
    assert status == 0
    assert "new links" not in printed
    assert not (tmp_path / "out" / "links.csv").exists()
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Suggested links" not in page
    assert "Scores" not in page
