"""The parts of scripts/benchmark."""
