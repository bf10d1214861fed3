"""Run models on ONNX Runtime with the planned order, measure them and verify their outputs."""
