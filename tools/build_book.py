"""Build the book: run the notebooks, two at a time, render the site, check it, and say
how long each part took.

    python tools/build_book.py [--jobs 2]

Outputs are kept in `_build/.jupyter_cache`; a notebook runs again only when something
that its run depends on has changed. A failing cell stops the build after all notebooks
have had their turn, and is shown.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book" / "_ext"))

CELL_SECONDS = 900
# One thread for each notebook, so that two of them share two cores; no progress bars on
# the pages.
SETTINGS = {
    name: "1"
    for name in (
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "TQDM_DISABLE",
    )
}


def notebooks() -> list[Path]:
    """The notebooks of the table of contents, in its order."""
    import yaml

    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    files = [entry["file"] for part in toc["parts"] for entry in part["chapters"]]
    return [ROOT / f"{name}.ipynb" for name in files if name.startswith("notebooks/")]


def run_notebook(path: Path) -> tuple[float, bool, str]:
    """Run one notebook in an empty folder, unless its outputs are kept already.

    Returns the seconds of the run, whether it took place now, and the traceback of the
    cell that failed, if one did.
    """
    log = (
        ROOT / "_build" / "kernels" / f"{path.stem}.log"
    )  # what the kernel itself says goes to a file
    log.parent.mkdir(parents=True, exist_ok=True)
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), sys.stderr.fileno())
    import nbformat
    from annotated_book.runs import cache_folder
    from jupyter_cache import get_cache
    from jupyter_cache.base import CacheBundleIn
    from jupyter_cache.executors.utils import single_nb_execution

    notebook = nbformat.read(path, 4)
    try:
        return (
            get_cache(cache_folder(path, ROOT))
            .match_cache_notebook(notebook)
            .data["execution_seconds"],
            False,
            "",
        )
    except KeyError:
        pass
    with tempfile.TemporaryDirectory() as empty:
        result = single_nb_execution(
            notebook, cwd=empty, timeout=CELL_SECONDS, allow_errors=False
        )
    if result.err is not None:
        return (
            result.time,
            True,
            result.exc_string.rpartition("CellExecutionError: ")[2],
        )
    bundle = CacheBundleIn(notebook, str(path), data={"execution_seconds": result.time})
    cache = get_cache(
        cache_folder(path, ROOT)
    )  # named anew: the run may have downloaded what it depends on
    cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
    return result.time, True, ""


def run_all(jobs: int) -> dict[str, float]:
    """Run every notebook that needs it; exits with the failures, if there are any."""
    paths, seconds, failures = notebooks(), {}, {}
    print(f"Running {len(paths)} notebooks, {jobs} at a time ...", flush=True)
    # The longest notebooks first, so that no worker ends up alone with one.
    queue = sorted(
        paths,
        key=lambda path: (
            path.stem not in ("00_tour", "06_transformer"),
            -path.stat().st_size,
        ),
    )
    with ProcessPoolExecutor(jobs) as pool:
        waiting = {pool.submit(run_notebook, path): path.stem for path in queue}
        for done, future in enumerate(as_completed(waiting), 1):
            name = waiting[future]
            took, fresh, trouble = future.result()
            seconds[name] = took
            outcome = "FAILED" if trouble else "" if fresh else "kept"
            print(
                f"  [{done:2d}/{len(paths)}] {name:34s} {took:7.1f} s  {outcome}",
                flush=True,
            )
            if trouble:
                failures[name] = trouble
    for name, trouble in failures.items():
        print(f"\n{name}: a cell failed\n{trouble}", file=sys.stderr)
    if failures:
        sys.exit(
            f"{len(failures)} of {len(paths)} notebooks failed: {', '.join(failures)}"
        )
    return {path.stem: seconds[path.stem] for path in paths}


def prune(keep: int = 4) -> None:
    """Of each notebook's caches, keep the newest few."""
    groups: dict[str, list[Path]] = {}
    for folder in (ROOT / "_build" / ".jupyter_cache").glob("*-*"):
        groups.setdefault(folder.name.rpartition("-")[0], []).append(folder)
    for folders in groups.values():
        for folder in sorted(folders, key=lambda folder: folder.stat().st_mtime)[
            :-keep
        ]:
            shutil.rmtree(folder)


def render(command: list[str]) -> None:
    """Run a step of the rendering; where it fails, this build ends with its code."""
    code = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL).returncode
    if code:  # read all again, or the next build would not repeat the warnings
        shutil.rmtree(ROOT / "_build" / ".doctrees", ignore_errors=True)
        sys.exit(code)


def zip_site(site: Path) -> Path:
    """An archive of the whole site, to be read from the disk, in the site itself."""
    archive = site / "_downloads" / "annotated-transformer-site.zip"
    archive.parent.mkdir(exist_ok=True)
    files = sorted(path for path in site.rglob("*") if path.is_file())
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for path in files:
            if path != archive:
                target.write(
                    path, Path("annotated-transformer") / path.relative_to(site)
                )
    return archive


def main() -> None:
    """Run, render, check, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--jobs", type=int, default=2, help="notebooks to run at the same time"
    )
    jobs = parser.parse_args().jobs
    os.environ.update(SETTINGS)
    start = time.perf_counter()
    seconds = run_all(jobs)
    ran = time.perf_counter() - start
    book = [
        str(Path(sys.executable).parent / "jupyter-book"),
        "build",
        ".",
        "-W",
        "-n",
        "--keep-going",
        "-q",
    ]
    print("Rendering the site ...", flush=True)
    render(book)
    archive = zip_site(ROOT / "_build" / "html")
    render([sys.executable, "tools/check_site.py", "_build/html"])
    prune()
    print("\nSeconds per chapter (a kept run counts as it was measured)")
    for name, took in seconds.items():
        print(f"  {name:36s} {took:7.1f}")
    total = time.perf_counter() - start
    print(f"  {'all chapters':36s} {sum(seconds.values()):7.1f}")
    print(
        f"This build took {total:.0f} s: notebooks {ran:.0f} s, "
        f"rendering and checking {total - ran:.0f} s."
    )
    print(
        f"To take along: {archive.relative_to(ROOT)}, "
        f"{archive.stat().st_size / 1e6:.0f} MB"
    )
    print("Read the book: _build/html/index.html")


if __name__ == "__main__":
    main()
