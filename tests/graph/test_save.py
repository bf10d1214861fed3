import os
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_symmem.errors import ModelFileError, UsageError
from onnx_symmem.graph.load import load_model
from onnx_symmem.graph.save import StagedModel


@pytest.fixture
def source(tmp_path):
    """A model in `in/` with two external tensors (one shared range) and the arrays they hold."""
    folder = tmp_path / "in"
    folder.mkdir()
    arrays = {"w": np.arange(64, dtype=np.float32), "v": np.arange(64, 96, dtype=np.float32)}
    nodes = [
        helper.make_node("Add", ["x", "w"], ["t"]),
        helper.make_node("Concat", ["t", "v"], ["y"], axis=0),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [96])
    graph = helper.make_graph(
        nodes, "g", [x], [y], [numpy_helper.from_array(a, n) for n, a in arrays.items()]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    path = folder / "m.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    return load_model(path), arrays


def test_weights_travel_with_the_model(tmp_path, source):
    model, arrays = source
    out = tmp_path / "out" / "small.onnx"
    out.parent.mkdir()
    with StagedModel(model.proto, out, model.folder) as staged:
        assert not out.exists()
        assert onnx.load(staged.path).graph.node
        written = staged.commit()
    assert [p.name for p in written] == ["small.onnx.data", "small.onnx"]
    assert sorted(p.name for p in out.parent.iterdir()) == ["small.onnx", "small.onnx.data"]
    loaded = onnx.load(out)
    for tensor in loaded.graph.initializer:
        np.testing.assert_array_equal(numpy_helper.to_array(tensor), arrays[tensor.name])
    onnx.checker.check_model(str(out))


def test_files_beside_come_and_go_with_the_model(tmp_path, source):
    model, _ = source
    out = tmp_path / "out" / "small.onnx"
    out.parent.mkdir()
    with StagedModel(model.proto, out, model.folder, beside={".session.json": "{}\n"}):
        assert [p.name for p in out.parent.iterdir() if not p.name.startswith(".")] == []
    assert list(out.parent.iterdir()) == []
    with StagedModel(model.proto, out, model.folder, beside={".session.json": "{}\n"}) as staged:
        written = staged.commit()
    assert [p.name for p in written] == ["small.onnx.data", "small.onnx.session.json", "small.onnx"]
    assert written[1].read_text() == "{}\n"


def test_nothing_is_left_without_commit(tmp_path, source):
    model, _ = source
    out = tmp_path / "out.onnx"
    before = sorted(tmp_path.iterdir())
    with pytest.raises(RuntimeError), StagedModel(model.proto, out, model.folder):
        raise RuntimeError
    assert sorted(tmp_path.iterdir()) == before


def test_truncated_weights_leave_nothing(tmp_path, source):
    model, _ = source
    data = tmp_path / "in" / "w.bin"
    data.write_bytes(data.read_bytes()[:-8])
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ModelFileError, match="truncated"):
        StagedModel(model.proto, tmp_path / "out.onnx", model.folder)
    assert sorted(tmp_path.iterdir()) == before


def test_the_source_may_be_overwritten(source):
    model, arrays = source
    with StagedModel(model.proto, model.path, model.folder) as staged:
        staged.commit()
    loaded = onnx.load(model.path)
    np.testing.assert_array_equal(numpy_helper.to_array(loaded.graph.initializer[0]), arrays["w"])


def test_a_move_that_breaks_off_leaves_what_was_there(source, monkeypatch):
    """The data is moved first; a model whose own data is gone would be lost."""
    model, _ = source
    out = model.path.parent / "n.onnx"
    with StagedModel(model.proto, out, model.folder) as staged:
        staged.commit()
    before = {path: path.read_bytes() for path in model.path.parent.iterdir()}
    changed = onnx.ModelProto()
    changed.CopyFrom(model.proto)
    del changed.graph.initializer[1:]
    moved, replace = [], Path.replace

    def broken(staged, target):
        if target == out and not moved:
            moved.append(target)
            raise KeyboardInterrupt
        return replace(staged, target)

    monkeypatch.setattr(Path, "replace", broken)
    with pytest.raises(KeyboardInterrupt), StagedModel(changed, out, model.folder) as staged:
        staged.commit()
    assert moved == [out]
    assert {path: path.read_bytes() for path in model.path.parent.iterdir()} == before
    out, moved[:] = model.path.parent / "fresh.onnx", []
    with pytest.raises(KeyboardInterrupt), StagedModel(changed, out, model.folder) as staged:
        staged.commit()
    assert {path: path.read_bytes() for path in model.path.parent.iterdir()} == before


def test_data_that_a_copy_of_the_model_reads_is_not_overwritten(source):
    """`cp m.onnx backup.onnx` copies no weights."""
    model, arrays = source
    out = model.path.parent / "n.onnx"
    with StagedModel(model.proto, out, model.folder) as staged:
        staged.commit()
    (out.parent / "empty.onnx").touch()
    with StagedModel(model.proto, out.parent / "an.onnx", model.folder) as staged:  # an.onnx.data
        staged.commit()
    with StagedModel(model.proto, out, model.folder) as staged:
        assert [path.name for path in staged.commit()] == ["n.onnx.data", "n.onnx"]
    copy = out.parent / "copy.onnx"
    copy.write_bytes(out.read_bytes())
    data = (out.parent / "n.onnx.data").read_bytes()
    with StagedModel(model.proto, out, model.folder) as staged:
        assert [path.name for path in staged.commit()] == ["n.onnx.2.data", "n.onnx"]
    assert (out.parent / "n.onnx.data").read_bytes() == data
    for tensor in onnx.load(copy).graph.initializer:
        np.testing.assert_array_equal(numpy_helper.to_array(tensor), arrays[tensor.name])


def test_two_that_write_to_one_target_take_turns(source):
    fcntl = pytest.importorskip("fcntl")
    model, _ = source
    out = model.path.parent / "n.onnx"
    handle = os.open(out.parent, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with StagedModel(model.proto, out, model.folder) as staged:
        writer = threading.Thread(target=staged.commit)
        writer.start()
        writer.join(0.3)
        assert not list(out.parent.glob("n.onnx*"))
        os.close(handle)
        writer.join()
    assert sorted(path.name for path in out.parent.glob("n.onnx*")) == ["n.onnx", "n.onnx.data"]


@pytest.mark.parametrize(
    ("target", "words"), [("no/such/folder/m.onnx", "does not exist"), ("in", "is a folder")]
)
def test_a_target_that_cannot_be_written(tmp_path, source, target, words):
    model, _ = source
    with pytest.raises(UsageError, match=words):
        StagedModel(model.proto, tmp_path / target, model.folder)


def test_weights_may_go_into_the_model_file(tmp_path, source):
    model, arrays = source
    with StagedModel(model.proto, tmp_path / "one.onnx", model.folder, inline=True) as staged:
        written = staged.commit()
    assert [p.name for p in written] == ["one.onnx"]
    loaded = onnx.load(written[0], load_external_data=False)
    for tensor in loaded.graph.initializer:
        np.testing.assert_array_equal(numpy_helper.to_array(tensor), arrays[tensor.name])


def test_a_model_beside_its_source_can_keep_the_data_file(source):
    model, arrays = source
    data = model.path.parent / "w.bin"
    before = data.stat().st_mtime_ns
    with StagedModel(model.proto, model.path.parent / "b.onnx", model.folder, keep=True) as staged:
        assert numpy_helper.to_array(onnx.load(staged.path).graph.initializer[0]).size == 64
        written = staged.commit()
    assert [p.name for p in written] == ["b.onnx"]
    assert sorted(p.name for p in model.path.parent.iterdir()) == ["b.onnx", "m.onnx", "w.bin"]
    assert data.stat().st_mtime_ns == before
    np.testing.assert_array_equal(
        numpy_helper.to_array(onnx.load(written[0]).graph.initializer[0]), arrays["w"]
    )


def test_elsewhere_the_data_is_copied_all_the_same(tmp_path, source):
    model, _ = source
    with StagedModel(model.proto, tmp_path / "b.onnx", model.folder, keep=True) as staged:
        assert [p.name for p in staged.commit()] == ["b.onnx.data", "b.onnx"]


def test_devices_and_pipes_are_not_overwritten(tmp_path, source):
    model, _ = source
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="not a regular file"):
        StagedModel(model.proto, pipe, model.folder)
    assert pipe.is_fifo()


def test_a_link_stays_a_link(tmp_path, source):
    model, _ = source
    real = tmp_path / "real.onnx"
    real.write_bytes(b"old")
    link = tmp_path / "link.onnx"
    link.symlink_to(real)
    with StagedModel(model.proto, link, model.folder, inline=True) as staged:
        staged.commit()
    assert link.is_symlink()
    assert onnx.load(real).graph.node


def test_data_of_another_model_is_not_overwritten(tmp_path, source):
    model, arrays = source
    folder = model.path.parent
    # The source was renamed and goes on using the data file of its old name.
    (folder / "w.bin").rename(folder / "old.onnx.data")
    proto = onnx.load(model.path, load_external_data=False)
    for tensor in proto.graph.initializer:
        next(e for e in tensor.external_data if e.key == "location").value = "old.onnx.data"
    model.path.write_bytes(proto.SerializeToString())
    before = (folder / "old.onnx.data").read_bytes()
    with StagedModel(proto, folder / "old.onnx", str(folder)) as staged:
        written = staged.commit()
    assert [p.name for p in written] == ["old.onnx.2.data", "old.onnx"]
    assert (folder / "old.onnx.data").read_bytes() == before
    for path in (model.path, written[1]):
        np.testing.assert_array_equal(
            numpy_helper.to_array(onnx.load(path).graph.initializer[0]), arrays["w"]
        )
    # Written again, it replaces its own data, unless that belongs to the source as well.
    foreign = frozenset(((folder / "old.onnx.2.data").resolve(),))
    with StagedModel(proto, folder / "old.onnx", str(folder)) as staged:
        assert [p.name for p in staged.commit()] == ["old.onnx.2.data", "old.onnx"]
    with StagedModel(proto, folder / "old.onnx", str(folder), foreign=foreign) as staged:
        assert [p.name for p in staged.commit()] == ["old.onnx.3.data", "old.onnx"]
