"""Turn shapes and an order into bytes: sizes, the plan of ONNX Runtime, profile and peak."""
