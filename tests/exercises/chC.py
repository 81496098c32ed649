"""Solutions of the exercises of appendix C, right and wrong."""

from harness import Exercise

EXERCISES = [
    Exercise(
        cell="C-a5d80e36",
        wrong={
            "trusts the newest": """
                found = find_checkpoints(folder)
                return found[-1] if found else None
            """,
            "the oldest that is whole": """
                for path in find_checkpoints(folder):
                    try:
                        load_tensors(path)
                    except (ValueError, FileNotFoundError):
                        continue
                    return path
            """,
            "the one before the newest, unread": """
                found = find_checkpoints(folder)
                try:
                    load_tensors(found[-1])
                    return found[-1]
                except (ValueError, FileNotFoundError):
                    return found[-2] if len(found) > 1 else None
                except IndexError:
                    return None
            """,
            "gives up at the first damaged one": """
                for path in reversed(find_checkpoints(folder)):
                    try:
                        load_tensors(path)
                    except (ValueError, FileNotFoundError):
                        return None
                    return path
            """,
            "the newest file": """
                names = folder.glob("step-*.json")
                by_time = sorted(names, key=lambda path: path.stat().st_mtime)
                for path in reversed(by_time):
                    try:
                        load_tensors(path.with_suffix(""))
                    except (ValueError, FileNotFoundError):
                        continue
                    return path.with_suffix("")
            """,
            "forgets that a file may be missing": """
                for path in reversed(find_checkpoints(folder)):
                    try:
                        load_tensors(path)
                    except ValueError:
                        continue
                    return path
            """,
            "removes what is damaged": """
                for path in reversed(find_checkpoints(folder)):
                    try:
                        load_tensors(path)
                    except (ValueError, FileNotFoundError):
                        path.with_suffix(".json").unlink()
                        continue
                    return path
            """,
            "looks at the marker alone": """
                for path in reversed(find_checkpoints(folder)):
                    try:
                        json.loads(path.with_suffix(".json").read_text())
                    except ValueError:
                        continue
                    return path
            """,
            "takes every marker for a checkpoint": """
                markers = sorted(folder.glob("*.json"), reverse=True)
                found = [path.with_suffix("") for path in markers]
                for path in found[::-1]:
                    try:
                        load_tensors(path)
                    except (ValueError, FileNotFoundError):
                        continue
                    return path
            """,
            "returns the file and not the checkpoint": """
                for path in reversed(find_checkpoints(folder)):
                    try:
                        load_tensors(path)
                    except (ValueError, FileNotFoundError):
                        continue
                    return path.with_suffix(".safetensors")
            """,
            "reads from the oldest and stops at the first damaged": """
                whole = None
                for path in find_checkpoints(folder):
                    try:
                        load_tensors(path)
                    except (ValueError, FileNotFoundError):
                        break
                    whole = path
                return whole
            """,
            "compares the digest and does not read the tensors": """
                for path in reversed(find_checkpoints(folder)):
                    try:
                        facts = json.loads(path.with_suffix(".json").read_text())
                        content = path.with_suffix(".safetensors").read_bytes()
                    except (ValueError, FileNotFoundError):
                        continue
                    if facts.pop("sha256") == digest_of(content, facts):
                        return path
                return None
            """,
            "the first whole one that the folder lists": """
                for marker in folder.glob("step-*.json"):
                    try:
                        load_tensors(marker.with_suffix(""))
                    except (ValueError, FileNotFoundError):
                        continue
                    return marker.with_suffix("")
                return None
            """,
        },
        right={
            "reads all of them and takes the last": """
                whole = None
                for path in find_checkpoints(folder):
                    try:
                        load_tensors(path)
                        whole = path
                    except Exception:
                        pass
                return whole
            """,
        },
    ),
    Exercise(
        cell="C-c7f2318a",
        wrong={
            "writes to the place itself": """
                path.write_bytes(content)
            """,
            "writes to the place itself, and syncs": """
                with path.open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
            """,
            "does not sync": """
                partial = path.with_name(f"{path.name}.partial")
                try:
                    partial.write_bytes(content)
                    partial.replace(path)
                finally:
                    partial.unlink(missing_ok=True)
            """,
            "syncs before the buffer is flushed": """
                partial = path.with_name(f"{path.name}.partial")
                try:
                    with partial.open("wb") as file:
                        file.write(content)
                        os.fsync(file.fileno())
                    partial.replace(path)
                finally:
                    partial.unlink(missing_ok=True)
            """,
            "syncs after the rename": """
                partial = path.with_name(f"{path.name}.partial")
                try:
                    partial.write_bytes(content)
                    partial.replace(path)
                    with path.open("r+b") as file:
                        os.fsync(file.fileno())
                finally:
                    partial.unlink(missing_ok=True)
            """,
            "leaves the half of a file": """
                partial = path.with_name(f"{path.name}.partial")
                with partial.open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                partial.replace(path)
            """,
            "says nothing of a full disk": """
                partial = path.with_name(f"{path.name}.partial")
                try:
                    with partial.open("wb") as file:
                        file.write(content)
                        file.flush()
                        os.fsync(file.fileno())
                    partial.replace(path)
                except OSError:
                    pass
                finally:
                    partial.unlink(missing_ok=True)
            """,
            "removes the old file first": """
                path.unlink(missing_ok=True)
                partial = path.with_name(f"{path.name}.partial")
                try:
                    with partial.open("wb") as file:
                        file.write(content)
                        file.flush()
                        os.fsync(file.fileno())
                    partial.replace(path)
                finally:
                    partial.unlink(missing_ok=True)
            """,
            "keeps the old content under another name": """
                old = path.read_bytes() if path.exists() else None
                try:
                    with path.open("wb") as file:
                        file.write(content)
                        file.flush()
                        os.fsync(file.fileno())
                except OSError:
                    path.unlink() if old is None else path.write_bytes(old)
                    raise
            """,
            "goes by way of another disk": """
                with tempfile.NamedTemporaryFile() as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                    os.link(file.name, f"{file.name}.new")
                    os.replace(f"{file.name}.new", path)
            """,
            "syncs a copy, and writes the place itself": """
                partial = path.with_name(f"{path.name}.partial")
                try:
                    with partial.open("wb") as file:
                        file.write(content)
                        file.flush()
                        os.fsync(file.fileno())
                    path.write_bytes(partial.read_bytes())
                finally:
                    partial.unlink(missing_ok=True)
            """,
            "calls the package's own": """
                files.write_atomically(path, content)
            """,
            "removes the old file just before the rename": """
                partial = path.with_name(f"{path.name}.partial")
                try:
                    with partial.open("wb") as file:
                        file.write(content)
                        file.flush()
                        os.fsync(file.fileno())
                    if path.exists():
                        os.remove(path)
                    partial.rename(path)
                finally:
                    partial.unlink(missing_ok=True)
            """,
            "moves the old file aside first": """
                partial = path.with_name(f"{path.name}.partial")
                backup = path.with_name(f"{path.name}.bak")
                try:
                    with partial.open("wb") as file:
                        file.write(content)
                        file.flush()
                        os.fsync(file.fileno())
                    if path.exists():
                        path.rename(backup)
                    partial.rename(path)
                finally:
                    partial.unlink(missing_ok=True)
                    backup.unlink(missing_ok=True)
            """,
            "believes that one os.write writes everything": """
                partial = path.with_name(f"{path.name}.partial")
                try:
                    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                    try:
                        os.write(descriptor, content)
                        os.fsync(descriptor)
                    finally:
                        os.close(descriptor)
                    os.replace(partial, path)
                finally:
                    partial.unlink(missing_ok=True)
            """,
        },
        right={
            "with fdatasync": """
                partial = path.with_suffix(".new")
                try:
                    with open(partial, "wb") as file:
                        file.write(content)
                        file.flush()
                        os.fdatasync(file.fileno())
                    os.rename(partial, path)
                except OSError:
                    os.remove(partial)
                    raise
            """,
            "with tempfile and os": """
                descriptor, name = tempfile.mkstemp(dir=path.parent)
                try:
                    with os.fdopen(descriptor, "wb", buffering=0) as file:
                        rest = memoryview(content)
                        while rest:
                            rest = rest[file.write(rest) :]
                        os.fsync(file.fileno())
                    os.replace(name, path)
                except BaseException:
                    os.unlink(name)
                    raise
            """,
        },
    ),
]
