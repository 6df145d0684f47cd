#!/usr/bin/env python3
"""Checks host/hub against the hub's own client: each finds what the other has fetched, and waits
while the other fetches it.

Needs Go, and PyPI's huggingface_hub. Run it from anywhere:

    python3 -m venv venv && venv/bin/pip install huggingface_hub
    venv/bin/python host/hub/testdata/check_client.py

The hub is the fake of the package's tests, so nothing but this machine is asked.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
MODEL = "acme/tiny"


def build(folder):
    """Builds the engine and the fake hub."""
    engine, fake = folder / "engine", folder / "fake"
    subprocess.run(["go", "build", "-o", engine, "./cmd/engine"], cwd=ROOT, check=True)
    subprocess.run(["go", "test", "-c", "-o", fake, "./host/hub"], cwd=ROOT, check=True)
    return engine, fake


def tree(folder):
    """All names below a folder, with what links lead to."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = "-> " + os.readlink(path)
        elif path.is_file():
            found[name] = path.stat().st_size
    return found


def main():
    work = pathlib.Path(tempfile.mkdtemp())
    engine, fake = build(work)
    server = subprocess.Popen(
        [fake, "-test.run", "^TestServe$", "-test.v"], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True, env=dict(os.environ, ENGINE_HUB_SERVE="1"))
    for line in server.stdout:
        if line.startswith("serving "):
            _, model, _, url = line.split()
            commit = model.rsplit("/", 1)[1]
            break
    ours, theirs = work / "ours", work / "theirs"
    env = dict(os.environ, HF_ENDPOINT=url, HF_TOKEN="hf_check", HF_HUB_DISABLE_XET="1")

    def run(cache, *args):
        """One command line of the engine."""
        done = subprocess.run([engine, *args], env=dict(env, HF_HUB_CACHE=str(cache)),
                              capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"engine {' '.join(args)}: exit {done.returncode}\n{done.stderr}")
        return done.stdout

    def client(cache, code):
        """A few lines for the client, in a process of its own: it reads the environment once."""
        done = subprocess.run([sys.executable, "-c", code],
                              env=dict(env, HF_HUB_CACHE=str(cache)), capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{code}\n{done.stderr}")
        return done.stdout.strip()

    # What we fetch, the client finds, without asking anybody.
    pulled = json.loads(run(ours, "pull", MODEL, "--json"))
    assert pulled["revision"] == commit and pulled["missing"] == [], pulled
    find = ("from huggingface_hub import snapshot_download, hf_hub_download, scan_cache_dir\n"
            f"print(snapshot_download({MODEL!r}, local_files_only=True))\n"
            f"print(hf_hub_download({MODEL!r}, 'model-00001-of-00003.safetensors', "
            "local_files_only=True))\n"
            "info = scan_cache_dir()\n"
            "print([str(w) for w in info.warnings], [(r.repo_id, sorted(v.refs), v.nb_files) "
            "for r in info.repos for v in r.revisions])\n")
    folder, shard, scanned = client(ours, find).splitlines()
    assert folder == pulled["path"], (folder, pulled["path"])
    assert shard == folder + "/model-00001-of-00003.safetensors", shard
    files = len(list(pathlib.Path(folder).iterdir()))
    assert scanned == f"[] [('{MODEL}', ['main'], {files})]", scanned
    # The client completes what we left out, and fetches nothing of ours again.
    blobs = {p.name: p.stat().st_mtime_ns for p in (ours / "models--acme--tiny/blobs").iterdir()}
    client(ours, f"from huggingface_hub import snapshot_download\nsnapshot_download({MODEL!r})")
    for name, time in blobs.items():
        after = (ours / "models--acme--tiny/blobs" / name).stat().st_mtime_ns
        assert after == time, f"{name} was fetched again"

    # What the client fetches, we find, and the names are the same.
    client(theirs, f"from huggingface_hub import snapshot_download\nsnapshot_download({MODEL!r})")
    listed = json.loads(run(theirs, "models", "--json"))
    assert [(m["name"], m["revision"], m["refs"], m["missing"]) for m in listed] == [
        (MODEL, commit, ["main"], [])], listed
    again = run(theirs, "pull", MODEL)
    assert " 0 files fetched and verified, 0 B " in again, again
    mine, other = tree(ours), tree(theirs)
    mine.pop("models--acme--tiny/trees/%s.json" % commit, None)
    differ = {k for k in mine.keys() | other.keys() if mine.get(k) != other.get(k)}
    differ = {k for k in differ if not k.startswith("models--acme--tiny/trees/")}
    assert not differ, differ

    # While the client holds a file's lock we wait, and say so.
    from filelock import FileLock
    third = work / "third"
    locks = third / ".locks/models--acme--tiny"
    locks.mkdir(parents=True)
    shard_hash = os.path.basename(os.readlink(shard))
    with FileLock(locks / f"{shard_hash}.lock"):
        waiting = subprocess.Popen([engine, "pull", MODEL], text=True, stderr=subprocess.PIPE,
                                   env=dict(env, HF_HUB_CACHE=str(third)))
        for line in waiting.stderr:
            if "waiting for another process" in line:
                break
        assert waiting.poll() is None, "the pull did not wait for the lock"
        assert not (third / "models--acme--tiny/refs/main").exists()
    waiting.communicate()
    assert waiting.returncode == 0, waiting.returncode

    server.stdin.close()
    rest = server.stdout.read()
    assert " 0 with a token elsewhere" in rest, rest
    import huggingface_hub
    print(f"huggingface_hub {huggingface_hub.__version__}: {len(other)} names equal, each finds the "
          f"other's; {rest.splitlines()[0]}")


main()
