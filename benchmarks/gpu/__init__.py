"""The check on a CUDA machine, in parts: what was read in ONNX Runtime's source and never measured there."""
