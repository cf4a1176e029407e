"""Model files that were damaged or forged, thousands of them.

A *damaged* file must be refused: whatever loads silently could predict wrongly. A *forged* file, whose digests were
made anew, may load, but nothing in it may run, crash or hang the process, or fill the memory; then the model is asked
to predict, because compiled code meets the forged arrays there.

    python tests/fuzz_model_files.py --damaged 10000 --forged 10000

The files are tried in a child process that the parent watches. `tests/test_persistence.py` runs a few hundred of them.
"""

from __future__ import annotations

import argparse
import collections
import copy
import faulthandler
import io
import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import polymargin
from polymargin.persistence import ModelFileError
from polymargin.persistence._container import (
    MANIFEST,
    SCHEMA,
    _digest,
    open_archive,
    pack,
    read_manifest,
    read_members,
)

#: Seconds that one file may take, and bytes that all of them together may take.
LONGEST, LARGEST = 20, 2**30


def models():
    """Return small fitted models of every kind by name, each with rows to predict."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 8)
    X = rng.normal(size=(24, 3)) + y[:, np.newaxis]
    mixed = np.column_stack([X[:, :2].astype(object), np.array(["red", "blue", "green"], dtype=object)[y]])
    columns = ColumnTransformer([("numbers", StandardScaler(), [0, 1]), ("names", OneHotEncoder(), [2])])
    given = {"C": 1.0, "gamma": 0.3}
    stack = polymargin.Stack(LogisticRegression())
    unfitted = {
        "lssvm": polymargin.LSSVMClassifier(kernel="rbf", **given),
        "variances": polymargin.LSSVMClassifier(kernel="laplacian", decoding="bayes", **given),
        "sparse": polymargin.LSSVMClassifier(kernel="laplacian", **given),
        "stack": polymargin.LSSVMClassifier(kernel="rbf", decoding=stack, **given),
        "svm": polymargin.SVMClassifier(kernel="laplacian"),
        "polynomial": polymargin.SVMClassifier(kernel="poly", random_state=np.random.RandomState(0)),
        "posterior": polymargin.PosteriorSVMClassifier(n_neighbors=2, random_state=0),
        "logistic": polymargin.KernelLogisticClassifier(kernel="rbf", **given),
        "neighbours": polymargin.KNNPosterior(3),
        "pipeline": make_pipeline(columns, polymargin.LSSVMClassifier(kernel="rbf", **given)),
    }
    rows = dict.fromkeys(unfitted, X) | {"sparse": sparse.csr_matrix(np.maximum(X, 0)), "pipeline": mixed}
    labels = dict.fromkeys(unfitted, y) | {"pipeline": np.array(["a", "b", "c"])[y]}
    return {name: (model.fit(rows[name], labels[name]), rows[name]) for name, model in unfitted.items()}


def saved(model):
    """Return the bytes of a model's file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        polymargin.save(model, path)
        return path.read_bytes()


def damaged(data, rng):
    """Return the file with something done to its bytes."""
    while True:
        changed = bytearray(data)
        start = int(rng.integers(len(data)))
        stop = min(len(data), start + int(rng.choice([1, 2, 8, 64, 1024])))
        match rng.choice(
            ["bit", "byte", "cut", "behead", "insert", "delete", "zero", "move", "append", "prepend"]
        ):
            case "bit":
                changed[start] ^= 1 << int(rng.integers(8))
            case "byte":
                changed[start] = int(rng.integers(256))
            case "cut":
                del changed[start:]
            case "behead":
                del changed[:start]
            case "insert":
                changed[start:start] = rng.bytes(stop - start)
            case "delete":
                del changed[start:stop]
            case "zero":
                changed[start:stop] = bytes(stop - start)
            case "move":  # as when members change places
                part, place = changed[start:stop], int(rng.integers(len(data)))
                del changed[start:stop]
                changed[place:place] = part
            case "append":
                changed += rng.bytes(stop - start)
            case "prepend":
                changed[:0] = rng.bytes(stop - start)
        if changed != data:
            return bytes(changed)


def forged(data, rng):
    """Return another file with digests that are right."""
    archive = open_archive(data)
    manifest = read_manifest(archive)
    members = read_members(archive, manifest, len(data))
    del manifest["members"]
    kind = rng.choice(
        ["schema", "schema", "schema", "type", "type", "array", "sparse", "manifest", "zip", "names"]
    )
    if kind == "zip":
        body = damaged(data[:-64], rng)
        return body + _digest(body).encode()
    if kind == "manifest":
        manifest = _changed_json(manifest, rng)
        return pack(manifest if isinstance(manifest, dict) else {}, members)
    if kind == "names":
        first, second = rng.choice([*members, MANIFEST, "../../x.npy", "a/b.json"], 2)
        members[str(second)] = members.get(str(first), b"")
        return pack(manifest, members)
    arrays = [name for name in members if name != SCHEMA]
    if kind in ("array", "sparse"):
        name = str(rng.choice(arrays))
        members[name] = _changed_array(members[name], rng) if kind == "array" else _foreign_array(rng)
        return pack(manifest, members)
    schema = json.loads(members[SCHEMA])
    schema = _with_evil(schema, rng) if kind == "type" else _changed_json(schema, rng)
    return pack(manifest, {**members, SCHEMA: json.dumps(schema).encode()})


#: What must not be loaded: modules, names in them, and what they would be called with.
CALLS = [
    ("os", "system", "touch {canary}"),
    ("posix", "system", "touch {canary}"),
    ("builtins", "eval", "open('{canary}', 'w')"),
    ("builtins", "exec", "open('{canary}', 'w')"),
    ("builtins", "open", "{canary}"),
    ("subprocess", "Popen", "touch"),
    ("functools", "partial", "{canary}"),
    ("operator", "methodcaller", "touch"),
    ("numpy", "load", "{canary}"),
    ("numpy", "fromfile", "{canary}"),
    ("numpy", "memmap", "{canary}"),
    ("numpy", "loadtxt", "{canary}"),
    ("numpy", "save", "{canary}"),
    ("joblib", "load", "{canary}"),
    ("joblib.numpy_pickle", "dump", "{canary}"),
    ("pickle", "loads", "cos\nsystem\n(S'touch {canary}'\ntR."),
    ("sklearn.datasets", "load_files", "{canary}"),
    ("sklearn.utils", "all_estimators", "{canary}"),
    ("sklearn.utils._testing", "set_random_state", "{canary}"),
    ("sklearn.tree._tree", "Tree", "{canary}"),
    ("polymargin.datasets", "load", "{canary}"),
    ("polymargin.persistence", "load", "{canary}"),
    ("polymargin._output", "write_atomically", "{canary}"),
    ("polymargin._output", "os", "{canary}"),
    ("polymargin.kernels.given", "FunctionKernel", "{canary}"),
    ("polymargin.kernels", "RBF", "{canary}"),
    ("polymargin.reproduction.journal", "Journal", "{canary}"),
    ("antigravity", "geohash", "{canary}"),
]
LOADERS = [
    "FunctionNode", "TypeNode", "ObjectNode", "ConstructorFromReduceNode", "MethodNode", "PartialNode",
    "OperatorFuncNode", "ListNode", "DictNode", "NdArrayNode", "LossNode", "TreeNode", "DefaultDictNode", "SetNode",
    "RandomStateNode", "RandomGeneratorNode", "QuantileForestNode", "CachedNode", "JsonNode", "SparseMatrixNode",
]  # fmt: skip
CANARY = Path(tempfile.gettempdir()) / f"polymargin-canary-{os.getpid()}"


def _json_node(value):
    return {
        "__class__": "str",
        "__module__": "builtins",
        "__loader__": "JsonNode",
        "content": json.dumps(value),
    }


def _tuple_node(*items):
    return {"__class__": "tuple", "__module__": "builtins", "__loader__": "TupleNode", "content": list(items)}


def _dict_node():
    keys = {"__class__": "list", "__module__": "builtins", "__loader__": "ListNode", "content": []}
    return {
        "__class__": "dict",
        "__module__": "builtins",
        "__loader__": "DictNode",
        "content": {},
        "key_types": keys,
    }


def evil_node(loader, module, name, argument):
    """Return a node that would call something, if its kind of node did that for this type."""
    node = {"__class__": name, "__module__": module, "__loader__": loader}
    text = _json_node(argument.format(canary=CANARY))
    function = {**node, "__loader__": "FunctionNode"}
    match loader:
        case "PartialNode":
            content = {
                "func": function,
                "args": _tuple_node(text),
                "kwds": _dict_node(),
                "namespace": _json_node(None),
            }
            return {**node, "content": content}
        case "MethodNode":
            return {**node, "content": {"func": "__init__", "obj": {**node, "__loader__": "ObjectNode"}}}
        case "OperatorFuncNode":
            return {**node, "__module__": "operator", "attrs": _tuple_node(text)}
        case "LossNode" | "TreeNode" | "QuantileForestNode":
            return {**node, "__reduce__": {"args": _tuple_node(text)}, "content": _dict_node()}
        case "ListNode" | "SetNode":
            return {**node, "content": [text]}
        case "DictNode":
            types = {**_dict_node()["key_types"], "content": [{**node, "__loader__": "TypeNode"}]}
            return {**_dict_node(), "content": {argument.format(canary=CANARY): text}, "key_types": types}
        case "NdArrayNode":
            return {**node, "type": "numpy", "file": "0.npy"}
        case "DefaultDictNode":
            return {
                **node,
                "content": {"main": _dict_node(), "default_factory": {**node, "__loader__": "TypeNode"}},
            }
        case "RandomGeneratorNode":
            state = {**_dict_node(), "content": {"bit_generator": _json_node(name)}}
            return {**node, "content": {"bit_generator": state, "seed_seq": _dict_node()}}
        case "FunctionNode":
            old = {"module_path": module, "function": name}
            return {**node, "content": old} if len(argument) % 2 else node
    return {**node, "content": _tuple_node(text)}


def _with_evil(schema, rng):
    """Return the schema with a node that is not to be loaded in some place, under any of skops's protocols."""
    schema = copy.deepcopy(schema)
    places = [(holder, key) for holder, key in _places(schema) if isinstance(holder[key], dict)]
    places = [(holder, key) for holder, key in places if "__loader__" in holder[key]]
    holder, key = places[int(rng.integers(len(places)))]
    loader, call = str(rng.choice(LOADERS)), CALLS[int(rng.integers(len(CALLS)))]
    node = evil_node(loader, *call)
    if rng.random() < 0.3:  # only the names, over a node that is otherwise right
        node = {**holder[key], **{name: node[name] for name in ("__class__", "__module__", "__loader__")}}
    if rng.random() < 0.3:
        node["__id__"] = int(rng.integers(1, 50))
    holder[key] = node
    schema["protocol"] = int(rng.integers(3))
    return schema


def _changed_json(tree, rng):
    """Return a JSON tree with one to three values changed, removed, exchanged or nested."""
    tree = copy.deepcopy(tree)
    for _ in range(int(rng.integers(1, 4))):
        places = list(_places(tree))
        if not places:
            break
        holder, key = places[int(rng.integers(len(places)))]
        other, other_key = places[int(rng.integers(len(places)))]
        values = [None, True, -1, 0, 1, 2, 10**18, -(10**30), 1e308, float("nan"), "", "0", "null", "[1, 2]",
                  '"x"', "-1", "1e999", "9" * 5000, [], {}, [[]], "polymargin", "0.npy", "\0", "ü" * 10]  # fmt: skip
        match rng.choice(["value", "value", "value", "remove", "exchange", "copy", "deep"]):
            case "value":
                holder[key] = values[int(rng.integers(len(values)))]
            case "remove":
                del holder[key]
            case "exchange":
                holder[key], other[other_key] = copy.deepcopy(other[other_key]), copy.deepcopy(holder[key])
            case "copy":
                holder[key] = copy.deepcopy(other[other_key])
            case "deep":
                for _ in range(int(rng.choice([5, 60, 250]))):
                    holder[key] = [holder[key]]
    return tree


def _places(tree):
    """Yield every value of a JSON tree as a container and a key of it."""
    stack = [tree]
    while stack:
        holder = stack.pop()
        for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
            yield holder, key
            if isinstance(holder[key], dict | list):
                stack.append(holder[key])


def _changed_array(content, rng):
    """Return an array's file with another header, or with other values."""
    headers = [
        (b"(", b"(9999999999, "),
        (b"(", b"(-1, "),
        (b"(", b"((((("),
        (b"'<f8'", b"'|O'"),
        (b"'<f8'", b"'<f4'"),
        (b"'<f8'", b"'<i8'"),
        (b"'<i8'", b"'<f8'"),
        (b"False", b"True"),
        (b"NUMPY", b"NUMPX"),
        (b"\x93NUMPY", b"PK\x03\x04"),
    ]
    match rng.choice(["header", "bytes", "values"]):
        case "header":
            old, new = headers[int(rng.integers(len(headers)))]
            return content.replace(old, new, 1)
        case "values" if content.startswith(b"\x93NUMPY"):
            array = np.load(io.BytesIO(content))
            file = io.BytesIO()
            np.save(file, _other_values(array, rng))
            return file.getvalue()
    return damaged(content, rng)


def _other_values(array, rng):
    """Return an array of another shape or type, or with values that are no indices of anything."""
    kind = array.dtype.kind
    choices = [
        array.T,
        array[:0] if array.ndim else array,
        array.ravel(),
        np.repeat(array, 2, axis=0) if array.ndim else array,
        np.zeros((0, 0)),
        np.full(array.shape, 10**9),
        np.full(array.shape, -(10**12)),
        np.full(array.shape, np.nan),
        array.astype("U"),
        -array if kind in "if" else array,
        array.astype("c16") if kind == "f" else array,
        array.astype("M8[s]") if kind == "i" else array,
    ]
    return choices[int(rng.integers(len(choices)))]


def _foreign_array(rng):
    """Return a sparse matrix whose indices are wrong."""
    matrix = sparse.random(24, 3, 0.5, format="csr", random_state=int(rng.integers(100)))
    part = [matrix.indices, matrix.indptr][int(rng.integers(2))]
    part[int(rng.integers(part.size))] = int(rng.choice([-1, -(10**9), 3, 10**9, 2**31 - 1]))
    file = io.BytesIO()
    sparse.save_npz(file, matrix)
    return file.getvalue()


class Watch:
    """Notices when a file makes Python do more than make objects, and a model more than compute."""

    PROGRAMS = (
        "os.exec",
        "os.fork",
        "os.posix_spawn",
        "os.system",
        "shutil.rmtree",
        "socket.connect",
        "subprocess.Popen",
        "webbrowser.open",
    )
    CODE = ("ctypes.dlopen", "exec", "os.remove", "os.rename", "pickle.find_class")

    def __init__(self):
        self.loading, self.predicting, self.seen = False, False, []
        sys.addaudithook(self._hear)

    def _hear(self, event, arguments):
        writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
        # What predicts may import late, or have numba compile and cache: code, but none of the file's.
        bad = self.loading and (writes or event in self.CODE)
        if bad or ((self.loading or self.predicting) and event in self.PROGRAMS):
            self.seen.append((event, repr(arguments)[:200]))


def tried(data, path, rows, watch):
    """Load a file; return what became of it. Anything but a refusal or a model is an exception here."""
    path.write_bytes(data)
    watch.loading = True
    try:
        model = polymargin.load(path)
    except ModelFileError:
        return "refused"
    finally:
        watch.loading = False
    watch.predicting = True
    try:
        model.predict(rows)
    except Exception:  # the model is forged: it may fail in any way that Python can report
        return "loaded, then failed to predict"
    finally:
        watch.predicting = False
    return "loaded, and predicted"


def run(kind, start, stop, seed):
    """Try files by number, in this process; print what became of them."""
    import resource  # here, because Windows has none and needs the rest of this file

    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    files = {name: (saved(model), rows) for name, (model, rows) in models().items()}
    names, watch, counts = list(files), Watch(), collections.Counter()
    for data, rows in files.values():  # what is imported or compiled late is none of the files' doing
        with tempfile.TemporaryDirectory() as folder:
            tried(data, Path(folder) / "model", rows, watch)
    watch.seen.clear()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + LARGEST, used + LARGEST))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        for number in range(start, stop):
            print(json.dumps({"number": number}), flush=True)
            faulthandler.dump_traceback_later(LONGEST, exit=True)
            rng = np.random.default_rng([seed, number])
            data, rows = files[names[number % len(names)]]
            outcome = tried((damaged if kind == "damaged" else forged)(data, rng), path, rows, watch)
            counts[outcome] += 1
            if watch.seen or CANARY.exists():
                raise SystemExit(f"{kind} file {number} (seed {seed}) ran something: {watch.seen}")
            if kind == "damaged" and outcome != "refused":
                raise SystemExit(f"damaged file {number} (seed {seed}) was loaded")
    faulthandler.cancel_dump_traceback_later()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(json.dumps({"counts": counts, "MiB grown": round(grown)}), flush=True)


def main():
    """Try files in child processes; say which of them ended one."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--damaged", type=int, default=10_000)
    parser.add_argument("--forged", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        kind, start, stop = options.child
        run(kind, int(start), int(stop), options.seed)
        return
    failures = 0
    for kind, total in (("damaged", options.damaged), ("forged", options.forged)):
        start = 0
        while start < total:
            command = [
                sys.executable,
                __file__,
                "--seed",
                str(options.seed),
                "--child",
                kind,
                str(start),
                str(total),
            ]
            child = subprocess.run(command, capture_output=True, text=True, check=False)
            last = [json.loads(line) for line in child.stdout.splitlines() if line.startswith("{")][-1:]
            if child.returncode == 0:
                print(f"{kind}: {total} files, {last[0]}")
                break
            failures += 1
            start = last[0]["number"] + 1 if last else total
            print(f"{kind} file {start - 1} ended its process ({child.returncode}):\n{child.stderr[-3000:]}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
