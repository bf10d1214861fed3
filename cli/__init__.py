"""The command line: one file per verb, installed as `onnx_symmem.cli`."""
