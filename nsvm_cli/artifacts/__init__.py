"""The outputs of a run that are read later: model files, predictions, diagnosis, ONNX graphs."""
