"""`dynagram demo`: one offline page, written whole or not at all."""


def test_demo_writes_one_offline_page(run, tmp_path):
    folder = tmp_path / "report"
    result = run("demo", "--output", folder, "--members", 2000)
    assert result.exit_code == 0, result.output
    assert str(folder / "index.html") in result.stdout.replace("\n", "")
    assert [p.name for p in folder.iterdir()] == ["index.html"]
    page = (folder / "index.html").read_text()
    assert len(page) < 1_000_000
    for piece in ("Verdict", "four-point vertex V", "± ", "worst z", "torch.nn.init", "chart-4"):
        assert piece in page


def test_demo_interrupted_leaves_the_old_page(run, tmp_path, monkeypatch):
    from dynagram.report import _initialisation as initialisation

    (tmp_path / "index.html").write_text("old")

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(initialisation, "simulate", interrupted)
    result = run("demo", "--output", tmp_path)
    assert result.exit_code == 130
    assert (tmp_path / "index.html").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["index.html"]


def test_demo_refuses(complaint, tmp_path):
    (tmp_path / "file").write_text("")
    assert "--output" in complaint("demo", "--output", tmp_path / "file")
    assert "members = 3" in complaint("demo", "--output", tmp_path, "--members", 3)
