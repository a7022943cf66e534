"""Downloads: files with the right digest are kept, and nothing of others or of those that break off."""

import dataclasses
import functools
import hashlib
import http.server
import io
import socket
import sys
import threading
import urllib.request

import pytest
from disk import files_in
from tiny_data import TINY_EDGES, write_planetoid

import seegera_fast as sf
from seegera_fast.command.main import main
from seegera_fast.datasets import registry
from seegera_fast.datasets.download import download

CONTENT = bytes(range(256)) * 1000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder. For a file named short.* the announced length is one byte too large."""

    def log_message(self, *arguments):
        pass

    def send_header(self, keyword, value):
        if keyword == "Content-Length" and "/short." in self.path:
            value = str(int(value) + 1)
        super().send_header(keyword, value)


@pytest.fixture
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def server(tmp_path, no_proxy):
    """Address of a server on this machine and the folder that it serves."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_address[1]}/", folder
        httpd.shutdown()
        thread.join()


@pytest.fixture
def closed_address(no_proxy):
    """An address on this machine where nothing answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"


class TestDownload:
    def test_right_digest(self, server, tmp_path, capsys):
        address, served = server
        (served / "a.bin").write_bytes(CONTENT)
        target = tmp_path / "new" / "folder" / "a.bin"
        download(address + "a.bin", target, DIGEST)
        assert target.read_bytes() == CONTENT
        assert files_in(target.parent) == ["a.bin"]
        assert capsys.readouterr() == ("", "")

    def test_progress_on_a_terminal(self, tmp_path, monkeypatch):
        class Terminal(io.StringIO):
            def isatty(self):
                return True

        (tmp_path / "a.bin").write_bytes(CONTENT)
        monkeypatch.setattr(sys, "stderr", Terminal())
        download((tmp_path / "a.bin").as_uri(), tmp_path / "b.bin", DIGEST, progress=False)
        assert sys.stderr.getvalue() == ""
        download((tmp_path / "a.bin").as_uri(), tmp_path / "b.bin", DIGEST)
        assert "b.bin: 100%" in sys.stderr.getvalue()

    @pytest.mark.parametrize("quiet", [False, True])
    def test_quiet_commands_show_no_bar(self, tmp_path, monkeypatch, quiet):
        """train, embed and reproduce pass --quiet on to the download."""
        asked = []

        def fetch(*arguments, progress):
            asked.append(progress)
            raise ConnectionError("there is no network")

        monkeypatch.setattr(registry, "download_file", fetch)
        options = ["--data", "cora", "--root", str(tmp_path / "root"), *["--quiet"] * quiet]
        sf.SeeGera(sf.datasets.load("digits"), embedding_dim=1, hidden_dim=1).save(tmp_path / "model")
        commands = {
            "train": ["train", *options, "--out", str(tmp_path / "out")],
            "embed": ["embed", str(tmp_path / "model"), *options, "--out", str(tmp_path / "e.npy")],
            "reproduce": ["reproduce", *options, "--out", str(tmp_path / "out")],
        }
        for command in commands.values():
            assert main(command) == 2
        assert asked == [not quiet] * len(commands)

    def test_wrong_digest_keeps_nothing(self, server, tmp_path):
        address, served = server
        (served / "a.bin").write_bytes(CONTENT + b"!")
        target = tmp_path / "new" / "a.bin"
        with pytest.raises(ValueError, match=f"want {DIGEST}; it was not kept"):
            download(address + "a.bin", target, DIGEST)
        assert files_in(target.parent) == []

    def test_wrong_digest_leaves_the_old_file(self, server, tmp_path):
        address, served = server
        (served / "a.bin").write_bytes(CONTENT + b"!")
        target = tmp_path / "a.bin"
        target.write_bytes(b"old")
        with pytest.raises(ValueError, match="SHA-256"):
            download(address + "a.bin", target, DIGEST)
        assert target.read_bytes() == b"old"
        assert files_in(tmp_path) == ["a.bin", "served"]

    def test_transfer_that_breaks_off(self, server, tmp_path):
        address, served = server
        (served / "short.bin").write_bytes(CONTENT)
        target = tmp_path / "new" / "short.bin"
        with pytest.raises(ConnectionError, match=f"short.bin: .*{len(CONTENT)}"):
            download(address + "short.bin", target, DIGEST)
        assert files_in(target.parent) == []

    def test_missing_on_the_server(self, server, tmp_path):
        address, _ = server
        target = tmp_path / "new" / "a.bin"
        with pytest.raises(ConnectionError, match="404"):
            download(address + "a.bin", target, DIGEST)
        assert files_in(target.parent) == []

    def test_interrupt_keeps_nothing(self, tmp_path, monkeypatch):
        class Response(io.BytesIO):
            def read(self, size):
                chunk = super().read(size)
                if not chunk:
                    assert len(files_in(tmp_path)) == 1
                    raise KeyboardInterrupt
                return chunk

        response = Response(CONTENT)
        response.headers = {}
        monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: response)
        with pytest.raises(KeyboardInterrupt):
            download("http://127.0.0.1/a.bin", tmp_path / "a.bin", DIGEST)
        assert files_in(tmp_path) == []

    def test_load_downloads_once(self, tmp_path, monkeypatch):
        folder = write_planetoid(tmp_path / "source")
        digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}
        entry = dataclasses.replace(registry.DATA_SETS["cora"], source=f"{folder.as_uri()}/", sha256=digests)
        monkeypatch.setitem(registry.DATA_SETS, "cora", entry)
        graph = sf.datasets.load("cora", tmp_path / "root")
        assert graph.edges().tolist() == TINY_EDGES
        assert files_in(tmp_path / "root" / entry.folder) == files_in(folder)
        folder.rename(tmp_path / "gone")
        assert sf.datasets.load("cora", tmp_path / "root").edges().tolist() == TINY_EDGES

    def test_load_offline_names_files_and_folder(self, tmp_path, monkeypatch, closed_address):
        for name, data_set in registry.DATA_SETS.items():
            monkeypatch.setitem(registry.DATA_SETS, name, dataclasses.replace(data_set, source=closed_address))
        for name in ("pubmed", "photo"):
            data_set = registry.DATA_SETS[name]
            folder = tmp_path / data_set.folder
            with pytest.raises(ConnectionError, match="download failed") as raised:
                sf.datasets.load(name, tmp_path)
            message = str(raised.value)
            assert message.startswith(f"{name}: files missing in {folder}: {', '.join(data_set.sha256)}. ")
            assert "root=" in message
            assert "SEEGERA_DATA" in message
            assert files_in(folder) == []

    def test_load_with_a_wrong_digest(self, tmp_path, monkeypatch):
        folder = write_planetoid(tmp_path / "source")
        entry = dataclasses.replace(registry.DATA_SETS["cora"], source=f"{folder.as_uri()}/")
        monkeypatch.setitem(registry.DATA_SETS, "cora", entry)
        with pytest.raises(ValueError, match=r"ind\.cora\.x: the file has SHA-256"):
            sf.datasets.load("cora", tmp_path / "root")

    def test_folder_that_cannot_be_made(self, tmp_path):
        root = tmp_path / "root"
        root.write_text("a file")
        with pytest.raises(OSError, match="photo: files missing in") as raised:
            sf.datasets.load("photo", root)
        assert not isinstance(raised.value, ConnectionError)
