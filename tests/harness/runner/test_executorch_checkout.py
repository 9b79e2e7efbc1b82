"""ExecuTorch's release is fetched from local mirrors of the public repositories, which git takes in their place."""

from __future__ import annotations

import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from command_line import answers, spawn
from cortex_m_hil.errors import BuildError
from cortex_m_hil.runner import executorch_checkout
from cortex_m_hil.runner.executorch_checkout import fetch_checkout, release_of_wheel

MODULES = "third-party/json", "backends/xnnpack/third-party/FXdiv", "third-party/googletest"


def git(folder: Path, *words: str) -> str:
    settings = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]
    return subprocess.run(
        ["git", "-C", str(folder), *settings, *words], check=True, capture_output=True, text=True
    ).stdout


def repository(folder: Path, files: dict[str, str]) -> Path:
    """Make a repository with one commit."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with mirrors of `github.com`, where ExecuTorch has a release and a later commit."""
    monkeypatch.setenv("HIL_CACHE_DIR", str(tmp_path / "cache"))
    mirror = tmp_path / "mirror"
    settings = f'[url "file://{mirror}/"]\n\tinsteadOf = https://github.com/\n[protocol "file"]\n\tallow = always\n'
    (tmp_path / "gitconfig").write_text(settings)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    nn = repository(mirror / "ARM-software/CMSIS-NN", {"CMakeLists.txt": "pinned"})
    pin = git(nn, "rev-parse", "HEAD").strip()
    (nn / "CMakeLists.txt").write_text("later")
    git(nn, "commit", "--quiet", "-am", "later")
    source = repository(
        mirror / "pytorch/executorch",
        {
            executorch_checkout.PIN_FILE: f'set(CMSIS_NN_VERSION\n    "{pin}"\n    CACHE STRING "")\n',
            "version.txt": "1",
        },
    )
    for path in MODULES:
        module = repository(mirror / "modules" / Path(path).name, {"CMakeLists.txt": path})
        url = f"https://github.com/modules/{module.name}"
        git(source, "submodule", "--quiet", "add", url, path)
    git(source, "commit", "--quiet", "-m", "submodules")
    git(source, "tag", release_of_wheel())
    (source / "version.txt").write_text("2")
    git(source, "commit", "--quiet", "-am", "later")
    return mirror


def test_the_release_of_the_wheel_has_its_submodules_and_its_cmsis_nn(mirror: Path) -> None:
    assert release_of_wheel() == f"v{metadata.version('executorch').partition('+')[0]}"
    told: list[str] = []
    found = fetch_checkout(release_of_wheel(), report=told.append)
    assert (found.source / "version.txt").read_text() == "1" and told[0] == "prepares"
    assert [(found.source / path / "CMakeLists.txt").is_file() for path in MODULES] == [True, True, False]
    assert found.cmsis_nn and (found.cmsis_nn / "CMakeLists.txt").read_text() == "pinned"
    assert git(found.source, "rev-list", "--count", "HEAD").strip() == "1"  # without its history


def test_a_release_is_fetched_once_and_a_branch_each_time(mirror: Path) -> None:
    release, branch = fetch_checkout(release_of_wheel()), fetch_checkout("main")
    assert (branch.source / "version.txt").read_text() == "2" and branch.cmsis_nn == release.cmsis_nn
    upstream = mirror / "pytorch/executorch"
    (upstream / "version.txt").write_text("3")
    git(upstream, "commit", "--quiet", "-am", "latest")
    assert (fetch_checkout("main").source / "version.txt").read_text() == "3"
    upstream.rename(mirror / "away")
    assert fetch_checkout(release_of_wheel()) == release
    commit = git(mirror / "away", "rev-parse", "HEAD").strip()
    assert (fetch_checkout(commit, str(mirror / "away")).source / "version.txt").read_text() == "3"


def test_a_fetch_that_was_interrupted_is_resumed(mirror: Path) -> None:
    """The first one stops at a submodule that cannot be fetched."""
    (mirror / "modules/json").rename(mirror / "json")
    with pytest.raises(BuildError, match="git fetches submodules: "):
        fetch_checkout(release_of_wheel())
    (mirror / "json").rename(mirror / "modules/json")
    assert (fetch_checkout(release_of_wheel()).source / MODULES[0] / "CMakeLists.txt").is_file()


def test_without_a_network_the_error_has_commands_that_fetch_the_same_elsewhere(
    mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = release_of_wheel()
    settings = (tmp_path / "gitconfig").read_text()
    (tmp_path / "gitconfig").write_text(settings.replace(str(mirror), str(tmp_path / "nowhere")))
    with pytest.raises(
        BuildError, match=f"git fetches {ref} of https://github.com/pytorch/executorch: fatal: "
    ) as caught:
        fetch_checkout(ref)
    (tmp_path / "gitconfig").write_text(settings)
    command = caught.value.hint.split("elsewhere: ")[1].split("; bring both folders")[0]
    away = tmp_path / "elsewhere"
    away.mkdir()
    # Of the five submodules this mirror has two.
    command = command.replace("third-party/flatbuffers third-party/flatcc third-party/gflags ", "")
    subprocess.run(["sh", "-ec", command], cwd=away, check=True, timeout=60)
    assert (away / "executorch" / MODULES[0] / "CMakeLists.txt").is_file()
    assert (away / "CMSIS-NN" / "CMakeLists.txt").read_text() == "pinned"


@pytest.mark.parametrize("ref", ["v9.9.9", "--upload-pack=touch x", "0" * 40])
def test_a_ref_that_is_not_there_is_told(ref: str, mirror: Path) -> None:
    with pytest.raises(BuildError, match="fatal: ") as caught:
        fetch_checkout(ref)
    assert ref in caught.value.message and not Path("x").exists()


def test_what_pins_no_cmsis_nn_is_told(mirror: Path) -> None:
    upstream = mirror / "pytorch/executorch"
    (upstream / executorch_checkout.PIN_FILE).write_text("")
    git(upstream, "commit", "--quiet", "-am", "no pin")
    with pytest.raises(BuildError, match=r"pins no commit of CMSIS-NN in backends/cortex_m/") as caught:
        fetch_checkout("main")
    assert "--cmsis-nn PATH" in caught.value.hint


def test_the_command_fetches_and_names_the_checkout(mirror: Path, tmp_path: Path) -> None:
    """The mirror has nothing to build, which is told for each CPU of the targets named."""
    done = spawn("executorch", "install", "-t", "m4-qemu,m0-qemu", "--json", cwd=tmp_path)
    source = tmp_path / "cache/sources" / f"executorch-{release_of_wheel()}"
    assert done.status == 2 and f"ExecuTorch: fetches {release_of_wheel()} of https://github.com/pytorch" in done.err
    for answer, cpu in zip(answers(done.out), ["cortex-m4", "cortex-m0plus"], strict=True):
        said = f"{source} is no ExecuTorch checkout: it has no CMakeLists.txt"
        assert (answer["target"], answer["error"]["message"]) == (cpu, said)


def test_a_checkout_and_a_ref_to_fetch_contradict_each_other(tmp_path: Path) -> None:
    done = spawn("executorch", "install", "--source", ".", "--ref", "v1.5.1", cwd=tmp_path)
    assert done.status == 2 and "leave out --source, or the others" in done.err


def test_a_target_without_a_cortex_m_has_nothing_to_install(tmp_path: Path) -> None:
    done = spawn("executorch", "install", "-t", "native", cwd=tmp_path)
    assert done.status == 2 and "no target is on a Cortex-M" in done.err and "-t m4-qemu" in done.err
