"""What a run leaves and others read: model files, predictions, evaluation, ONNX graphs."""
